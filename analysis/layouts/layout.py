"""The common part of layouts of tables and figures: YAML files of an experiment, and selections of its cells."""

import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from fedflat.analysis.analyses import read_own
from fedflat.analysis.layouts.grid import in_words, main_setting
from fedflat.analysis.layouts.score import with_score
from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.files import PAPER_TABLES, experiment_file, experiment_files, read_key, read_yaml
from fedflat.bench.experiments.resolving import experiment_data
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError, located, unknown
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.methods.catalog import CATALOG

Folder = Literal["tables", "figures"]

DEFAULTS = PAPER_TABLES / "quick"
"""The folder of the layouts of an experiment that has none of its own and inherits none."""


class Selection(Frozen):
    """Fields of a setting; together they must fit exactly one setting of the experiment."""

    dataset: str | None = Field(default=None, description="label of a data set, or of a part of the experiment")
    partition: str | None = Field(default=None, description="label of a partition, such as dirichlet-0.1")
    participation: str | None = Field(default=None, description="label of a participation, such as 4-of-20")

    def given(self) -> dict[str, str]:
        """The fields that are set."""
        fields = {"dataset": self.dataset, "partition": self.partition, "participation": self.participation}
        return {name: value for name, value in fields.items() if value is not None}

    def narrowed(self, other: "Selection") -> "Selection":
        """Both selections combined; `other` takes precedence in fields that both set."""
        return Selection(**{**self.given(), **other.given()})

    def setting(self, experiment: Experiment) -> Setting:
        """The one setting of the experiment that fits; a `UserError` if none or several fit."""
        found = everything = tuple(experiment.settings)
        for field, value in self.given().items():
            known = {getattr(setting, field) for setting in everything}
            if value not in known:
                raise unknown(f"{field} of experiment {experiment.name}", value, known)
            found = tuple(setting for setting in found if getattr(setting, field) == value)
        if len(found) != 1:
            matches = ", ".join(setting.path for setting in found) or "none"
            raise UserError(
                f"select must match one setting of experiment {experiment.name}, but {self.given()} matches {matches}"
            )
        return found[0]

    def completed(self, experiment: Experiment) -> Self:
        """The selection with the fields of the main setting among those that fit, where several fit."""
        given = self.given().items()
        fitting = [one for one in experiment.settings if all(getattr(one, name) == value for name, value in given)]
        if len(fitting) < 2:
            return self
        setting = main_setting(experiment, fitting)
        fields = ("dataset", "partition", "participation")
        return self.model_copy(update={field: getattr(setting, field) for field in fields})


class Layout(Frozen):
    """The fields of every table and figure."""

    title: str = Field(description="heading; {data} and {setting} as in caption")
    caption: str = Field(
        description="what is measured: one sentence for the caption, others for the notes below; {data} stands for the "
        "data sets, {setting} for the partition and participation"
    )
    methods: tuple[str, ...] = Field(
        min_length=1,
        description="labels of methods, in order; those that the experiment lacks are left out; default: all methods",
    )
    most: Count | None = Field(
        examples=[1000],
        default=None,
        description="largest number of methods: the first one of `methods` that exists, your own ones (with `file` or "
        "components), the others of `methods`, then the others of the experiment; null: no limit",
    )

    @classmethod
    def prepared(cls, data: dict[str, Any], experiment: Experiment) -> dict[str, Any]:
        """The content of a file, before it is validated."""
        return data

    @model_validator(mode="after")
    def _methods_once(self) -> "Layout":
        twice = [method for method in self.methods if self.methods.count(method) > 1]
        if twice:
            raise UserError(f"method {twice[0]} is listed twice in methods")
        return self

    @abstractmethod
    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The settings that are shown, each once."""

    def fitted(self, experiment: Experiment, others: Collection[str] = ()) -> Self:
        """The layout for an experiment: those of its methods that the experiment has, and settings of its grid.

        `others`: labels of methods that the experiment need not have, besides those of the catalog. A `UserError` names
        another method that the experiment lacks, or says that it has none of them.
        """
        for method in self.methods:
            known = experiment.labels_of(method) or self._is_row(method, experiment)
            if not (known or method in CATALOG or method in others):
                raise unknown(f"method of experiment {experiment.name}", method, experiment.methods)
        methods = self._shown_methods(experiment)
        if not methods:
            raise UserError(f"experiment {experiment.name} has none of its methods: {', '.join(self.methods)}")
        layout = self.model_copy(update={"methods": methods})._over_grid(experiment)
        texts = {"title": layout.title, "caption": layout.caption}
        if not any("{" in text for text in texts.values()):
            return layout
        settings = layout.settings(experiment)
        return layout.model_copy(update={name: in_words(text, experiment, settings) for name, text in texts.items()})

    def _shown_methods(self, experiment: Experiment) -> tuple[str, ...]:
        """The shown methods: in the layout's order, or with `most` in the experiment's order."""
        labels = [label for method in self.methods for label in experiment.labels_of(method) or [method]]
        listed = [label for label in dict.fromkeys(labels) if self._is_row(label, experiment)]
        if self.most is None:
            return tuple(listed)
        ranked = dict.fromkeys([*listed[:1], *experiment.own_methods, *listed, *experiment.methods])
        chosen = [method for method in ranked if experiment.is_chosen(method)]
        shown = (chosen or list(ranked))[: self.most]  # with none of them chosen, the layout fits, but is not shown
        return tuple(method for method in experiment.methods if method in shown)

    def _is_row(self, method: str, experiment: Experiment) -> bool:
        """Whether a method is shown, or would be if it were chosen."""
        return method in experiment.methods

    def _over_grid(self, experiment: Experiment) -> Self:
        """The layout with settings of the experiment's grid where it names none."""
        return self

    def cells(self, experiment: Experiment) -> tuple[CellAddress, ...]:
        """The shown cells that the experiment has; a `UserError` names a method or setting that it does not have."""
        for method in self.methods:
            if method not in experiment.methods:
                raise unknown(f"method of experiment {experiment.name}", method, experiment.methods)
        cells = (CellAddress(setting, method) for setting in self.settings(experiment) for method in self.methods)
        return tuple(cell for cell in cells if experiment.has_cell(cell))


def existing_cell(setting: Setting, label: str, experiment: Experiment) -> CellAddress:
    """A cell that the experiment has; a `UserError` if it does not."""
    known = experiment.resolved_parts[setting.dataset].methods
    if label not in known:
        raise unknown(f"method of experiment {experiment.name} in {setting.path}", label, known)
    return CellAddress(setting, label)


def layout_names(experiment_name: str, folder: Folder) -> list[str]:
    """The names of an experiment's tables or figures, sorted.

    An experiment without such a folder inherits the layouts of the experiment that it extends, which need not fit it.
    If neither has any, it has the default layouts, those of quick, which show the settings of any grid.
    """
    names = [file.stem for file in _folder(experiment_name, folder).glob("*.yaml")]
    for name in names:
        if not name.isprintable():
            where = f"{folder} of experiment {experiment_name}"
            raise UserError(f"{where}: the name '{name}' has characters that cannot be printed")
    return sorted(names, key=_by_number)


def _by_number(name: str) -> list[tuple[int, str]]:
    """A sort key that puts table 2 before table 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def subfigures(names: Iterable[str]) -> dict[str, list[str]]:
    """Names that share a number, such as 4a and 4b, by that number; a number that is itself a name is omitted."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if number := re.match(r"\d+", name):
            groups.setdefault(number.group(), []).append(name)
    return {number: group for number, group in groups.items() if len(group) > 1 and number not in group}


def are_inherited(experiment_name: str, folder: Folder) -> bool:
    """Whether an experiment's tables or figures are not its own: inherited, or the default ones."""
    return _folder(experiment_name, folder).parent != experiment_file(experiment_name).parent


def are_default(experiment_name: str, folder: Folder) -> bool:
    """Whether an experiment's tables or figures are those of quick, which show any grid."""
    return _folder(experiment_name, folder).resolve() == (DEFAULTS / folder).resolve()


def layout_file(experiment_name: str, folder: Folder, name: str) -> Path:
    """The file of one layout; for an unknown name, a `UserError` suggests the nearest one."""
    names = layout_names(experiment_name, folder)
    if name not in names:
        raise unknown_layout(experiment_name, folder, name, names)
    return _folder(experiment_name, folder) / f"{name}.yaml"


def unknown_layout(experiment_name: str, folder: Folder, name: str, names: Collection[str]) -> UserError:
    """A `UserError` for a name that is not among an experiment's layouts."""
    kind = folder.removesuffix("s")
    if not name:
        return UserError(
            f"which {kind} of experiment {experiment_name}? (allowed: {', '.join(sorted(names)) or 'none'})"
        )
    other: Folder = "figures" if folder == "tables" else "tables"
    if name in layout_names(experiment_name, other):
        other_kind = other.removesuffix("s")
        command = f"fedflat {other_kind} {experiment_name} {name}"
        return UserError(f"'{name}' is a {other_kind} of experiment {experiment_name}; for it: {command}")
    own = name.rpartition(f"{kind}_")[2]  # Snakemake's targets are called quick_table_accuracy
    meant = own if own in names else None
    return unknown(f"{kind} of experiment {experiment_name}", name, names, meant)


def layout_files(experiment_name: str, folder: Folder, name: str) -> list[Path]:
    """A layout's file, then the files of the layouts that it is `like`; a `UserError` if these form a cycle."""
    files = [layout_file(experiment_name, folder, name)]
    while (like := read_key(files[-1], "like")) is not None:
        if str(like) not in (names := layout_names(experiment_name, folder)):
            raise unknown(f"layout in like of '{files[-1]}':", str(like), names)
        files.append(layout_file(experiment_name, folder, str(like)))
        if files[-1] in files[:-1]:
            raise UserError(f"'{files[-2]}': like: {like}: a layout cannot be based on itself")
    return files


AnyLayout = TypeVar("AnyLayout", bound=Layout)


def load_layout(
    kinds: Mapping[str, type[AnyLayout]] | type[AnyLayout],
    experiment_name: str,
    folder: Folder,
    name: str,
    experiment: Experiment | None = None,
    part: str | None = None,
) -> AnyLayout:
    """One layout, validated and fitted to its experiment; a `UserError` says which file is wrong, and why.

    `kinds`: its class, or the classes by `kind`; `experiment`: None: the named experiment without overrides. With
    `like: NAME`, keys that a layout does not give are those of the layout NAME; a given key replaces the other layout's
    value entirely. A layout without `methods` shows all methods of the experiment. `part`: the label of the only part
    of the experiment that is shown by a layout of one setting; its title names it.
    """
    files = layout_files(experiment_name, folder, name)
    experiment = load_experiment(experiment_name) if experiment is None else experiment
    read_own(experiment.analyses or ())  # a layout may show what they measure
    data = {"methods": list(experiment.methods), **_content(files)}
    if part is not None:
        data |= {"title": f"{data.get('title')}: {part}", "select": {"dataset": part}}
    if isinstance(kinds, Mapping):
        if "kind" not in data:
            raise UserError(f"'{files[0]}' has no kind (allowed: {', '.join(kinds)})")
        if str(data["kind"]) not in kinds:
            raise unknown(f"kind of figure in {files[0]}", str(data["kind"]), kinds)
        kinds = kinds[str(data["kind"])]
    try:
        data = with_score(data, experiment, part)
    except UserError as error:
        raise located(f"'{files[0]}'", error) from None
    layout = kinds.parse(kinds.prepared(data, experiment), where=str(files[0]))
    try:
        strange = {method for method in layout.methods if method not in experiment.methods}
        return layout.fitted(experiment, _methods_of_files(experiment_name) if strange else ())
    except UserError as error:
        raise located(f"'{files[0]}'", error) from None


def shows_sweeps(experiment_name: str, folder: Folder, name: str) -> bool:
    """Whether a layout shows the sweeps of its experiment, which need not have any; the experiment is not read."""
    files = layout_files(experiment_name, folder, name)
    if not any(word in file.read_text(encoding="utf-8") for file in files for word in ("kind: sweep", "swept:")):
        return False  # a quick answer for most of the files
    data = layout_content(experiment_name, folder, name)
    return bool(data.get("swept")) or (data.get("kind") == "sweep" and not data.get("panels"))


def layout_content(experiment_name: str, folder: Folder, name: str) -> dict[str, Any]:
    """The keys of a layout, as its file and those that it is `like` give them."""
    return _content(layout_files(experiment_name, folder, name))


def _content(files: Iterable[Path]) -> dict[str, Any]:
    """The keys of a layout, over those of the layouts that it is `like`."""
    data: dict[str, Any] = {}
    for file in reversed(list(files)):
        data |= read_yaml(file)
    data.pop("like", None)
    return data


def _folder(experiment_name: str, folder: Folder) -> Path:
    places = [file.parent / folder for file in experiment_files(experiment_name)]
    return next((place for place in places if place.is_dir()), DEFAULTS / folder)


def _methods_of_files(experiment_name: str) -> set[str]:
    """The labels of methods in the experiment's file, and in the files that it extends."""
    sections: list[Any] = []
    for file in experiment_files(experiment_name):
        data = experiment_data(str(file))
        sections += [data, *(parts.values() if isinstance(parts := data.get("parts"), dict) else ())]
    methods = [section.get("methods") for section in sections if isinstance(section, dict)]
    return {str(label) for of_section in methods if isinstance(of_section, dict) for label in of_section}
