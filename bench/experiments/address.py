"""Addresses of settings and cells: the labels in paths of results, in columns of tidy files, and in error messages.

A cell is one method in one setting, with all its seeds; a setting is a data set, a partition and a participation.
"""

from dataclasses import dataclass

IDS = ["dataset", "partition", "participation", "method"]
"""Columns of tidy files that name a cell; each combination of values occurs once in an experiment."""

RUN_IDS = [*IDS, "seed"]
"""Columns of tidy files that name a run."""


@dataclass(frozen=True, order=True)
class Setting:
    """A setting by the labels of its data set (or experiment part), partition and participation."""

    dataset: str
    partition: str
    participation: str

    @classmethod
    def of(cls, path: str) -> "Setting":
        """The setting of a path such as digits/dirichlet-0.1/4-of-20."""
        return cls(*path.split("/"))

    @property
    def path(self) -> str:
        """For example digits/dirichlet-0.1/4-of-20."""
        return f"{self.dataset}/{self.partition}/{self.participation}"

    @property
    def where_labels(self) -> tuple[str, str, str]:
        """The labels under which a method's `where` has values for this setting; a later one takes precedence."""
        return (self.partition, f"{self.partition}/{self.participation}", self.path)


@dataclass(frozen=True, order=True)
class CellAddress:
    """A cell by its setting and the label of its method."""

    setting: Setting
    method: str

    @classmethod
    def of(cls, path: str) -> "CellAddress":
        """The cell of a path such as digits/dirichlet-0.1/4-of-20/fedsam."""
        setting, _, method = path.rpartition("/")
        return cls(Setting.of(setting), method)

    @property
    def path(self) -> str:
        """For example digits/dirichlet-0.1/4-of-20/fedsam."""
        return f"{self.setting.path}/{self.method}"

    @property
    def ids(self) -> tuple[str, str, str, str]:
        """The values of the columns `IDS`."""
        return (self.setting.dataset, self.setting.partition, self.setting.participation, self.method)

    @property
    def columns(self) -> dict[str, str]:
        """The columns `IDS` with their values."""
        return dict(zip(IDS, self.ids, strict=True))
