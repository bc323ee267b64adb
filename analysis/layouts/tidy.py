"""The tidy CSV files of an experiment: where they lie, and one data frame out of many.

A cell's path is its identity: data set, partition, participation and method are taken from where a file lies.
A file that does not exist is an absent cell, not an error.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from analysis.analyses.base import Analysis
from analysis.analyses.provenance import PROVENANCE_COLUMNS, first_difference, name_value_pairs
from bench.experiments.columns import IDS
from bench.experiments.experiment import SWA_SUFFIX, Experiment, MethodEntry
from bench.input.errors import UserError, unknown
from bench.training.run_directory import PARTITION, RunDirectory
from bench.training.run_directory import first_difference as first_difference_of_configs

_TITLES = {
    "iid": "IID",
    "centralized": "Centralized",
    "dirichlet": "Dirichlet",
    "pathological": "Pathological",
    "lda": "LDA",
    "pam": "PAM",
    "by_group": "By group",
}
"""Partitions in words."""


def partition_title(label: str) -> str:
    """For example Dirichlet 0.1 of dirichlet-0.1; of a partition file its name, such as mine of file-mine."""
    name, _, parameter = label.partition("-")
    if name == "file":
        return parameter or label
    return f"{_TITLES[name]} {parameter.replace('-', ', ')}".strip() if name in _TITLES else label


@dataclass(frozen=True, order=True)
class Setting:
    """Data set, partition and participation, by their labels."""

    dataset: str
    partition: str
    participation: str

    @property
    def path(self) -> str:
        """For example digits/dirichlet-0.1/4-of-20."""
        return f"{self.dataset}/{self.partition}/{self.participation}"

    @property
    def partition_title(self) -> str:
        """For example Dirichlet 0.1."""
        return partition_title(self.partition)

    @property
    def participation_title(self) -> str:
        """For example 4 of 20 clients."""
        bernoulli = re.fullmatch(r"bernoulli-(.+)-of-(\d+)", self.participation)
        if bernoulli:
            return f"{bernoulli[2]} clients, each with probability {bernoulli[1]}"
        schedule = re.fullmatch(r"schedule-(.+)-of-(\d+)", self.participation)
        if schedule:
            return f"{schedule[2]} clients, schedule {schedule[1]}"
        return f"{self.participation.replace('-', ' ')} clients"

    @property
    def title(self) -> str:
        """For headings: partition and participation."""
        return f"{self.partition_title}, {self.participation_title}"


@dataclass(frozen=True)
class CellKey:
    """One method in one setting."""

    setting: Setting
    method: str

    @classmethod
    def of(cls, path: str) -> "CellKey":
        """That of a path, such as digits/dirichlet-0.1/4-of-20/fedsam."""
        *setting, method = path.split("/")
        return cls(Setting(*setting), method)

    @property
    def path(self) -> str:
        """For example digits/dirichlet-0.1/4-of-20/fedsam."""
        return f"{self.setting.path}/{self.method}"

    def compared_with(self, label: str, experiment: Experiment) -> "CellKey":
        """That of another method in the same setting, or of the same method with another partition.

        A `UserError` if the label is neither, or the experiment has no such setting.
        """
        methods = experiment.whole_parts[self.setting.dataset].methods
        if label in methods:
            return CellKey(self.setting, label)
        other, known = replace(self.setting, partition=label), settings(experiment)
        if other not in known:
            labels = [*methods, *dict.fromkeys(place.partition for place in known)]
            if label not in labels:
                raise unknown(f"method or partition to compare {self.path} with", label, labels)
            raise unknown(f"setting to compare {self.path} with", other.path, [place.path for place in known])
        return CellKey(other, self.method)

    @property
    def ids(self) -> tuple[str, str, str, str]:
        """The values of the id columns."""
        return (self.setting.dataset, self.setting.partition, self.setting.participation, self.method)


@dataclass(frozen=True)
class TidyFile:
    """One kind of tidy file: its place under `results/`, and the columns that its readers rely on."""

    folder: str
    name: str
    columns: tuple[str, ...]
    per_seed: bool = False


SPLITS = "partitions"
"""The folder of splits that were drawn without training."""

FILES = {
    "metrics": TidyFile(
        "runs",
        "metrics.csv",
        (
            "identity",
            "seed",
            "round",
            "local_loss",
            "client_drift",
            "train_loss",
            "train_accuracy",
            "test_loss",
            "test_accuracy",
            "diverged",
            "code",
        ),
    ),
    "partition": TidyFile(SPLITS, PARTITION, ("client", "index", "label"), per_seed=True),
}
"""Those of runs, and splits, which need no run; all others are named by their analysis."""


def _of_analysis(name: str, columns: tuple[str, ...]) -> TidyFile:
    return TidyFile("analysis", f"{name}.csv", ("identity", "seed", *columns, *PROVENANCE_COLUMNS))


def relative_path(experiment: str, file: str, cell: CellKey, seed: int = 0) -> str:
    """Where a tidy file lies under `results/`; `seed` matters for the kinds that are written per seed."""
    kind = FILES.get(file) or _of_analysis(file, ())
    folder = (f"seed-{seed}",) if kind.per_seed else ()
    return str(PurePosixPath(kind.folder, experiment, cell.path, *folder, kind.name))


def cells_of(results: Path, files: Iterable[Path]) -> list[str]:
    """The paths of the cells that tidy files under `results` belong to, each once; other files belong to none."""
    below = (file.relative_to(results).parts for file in files if results in file.parents)
    return list(dict.fromkeys("/".join(parts[2:6]) for parts in below if parts[0] in {"runs", "analysis", SPLITS}))


def settings(experiment: Experiment) -> tuple[Setting, ...]:
    """The settings of an experiment, in the grid's order."""
    return tuple(Setting(*path.split("/")) for path in experiment.settings())


def all_cells(experiment: Experiment) -> list[CellKey]:
    """Every cell of an experiment, in the grid's order."""
    return [CellKey.of(path) for path in experiment.paths()]


def titles(experiment: Experiment, shown: Iterable[str] | None = None) -> dict[str, str]:
    """The name of each method as a paper prints it, or as the experiment has it.

    Of entries that share one, those show their own label too that are not called as the method is. `shown`: labels of
    those that stand side by side; None: all of the experiment's.
    """
    names = {label: _title(label, experiment.methods[label]) for label in (shown or experiment.methods)}
    uses = Counter(names.values())
    own = {
        label
        for label in names
        if uses[names[label]] == 1 or label.removesuffix(SWA_SUFFIX) == experiment.methods[label].choice(label).name
    }
    return {label: name if label in own else f"{name} ({label})" for label, name in names.items()}


def _title(label: str, entry: MethodEntry) -> str:
    if entry.title is not None:
        return entry.title
    recipe, released = entry.choice(label).recipe, entry.release(label)
    wrapped = " + SWA" if "swa" in entry.hyperparameters else ""
    law = ", Bernoulli participation" if released is not None and released.sampling == "bernoulli" else ""
    return f"{recipe.title}{wrapped}" + (f" ({entry.variant}{law})" if released is not None else "")


@dataclass(frozen=True)
class Tidy:
    """The tidy files of one experiment under a results folder. `analyses`: its analyses by name, with their options."""

    results: Path
    experiment: Experiment
    analyses: Mapping[str, Analysis]

    def path(self, file: str, cell: CellKey, seed: int = 0) -> Path:
        """Where a tidy file of a cell lies, whether it is there or not."""
        return self.results / relative_path(self.experiment.name, file, cell, seed)

    def has_runs(self) -> bool:
        """Whether any cell of the experiment has been trained."""
        return any(self.path("metrics", cell).is_file() for cell in all_cells(self.experiment))

    def gather(self, file: str, cells: Iterable[CellKey], seed: int = 0, also: Sequence[str] = ()) -> pd.DataFrame:
        """One frame of all given cells that have the file (perhaps none): id columns, then the file's own.

        `also`: columns that only some of the files may have, NaN for the others.

        A `UserError` if a file's runs, or those which they were compared with, are of another configuration than the
        experiment's, or analysed with other options: old numbers are never shown as new ones. A split, which holds no
        numbers of runs, is not checked; where none was drawn by itself, a run's own is taken.
        """
        kind = FILES.get(file) or _of_analysis(file, self.analyses[file].columns)
        columns = list(dict.fromkeys([*IDS, "seed", *kind.columns, *([] if file in FILES else ["definition"]), *also]))
        frames = []
        for cell in dict.fromkeys(cells):
            path = self.path(file, cell, seed)
            if file == "partition" and not path.is_file():
                path = self.path("metrics", cell).with_name(f"seed-{seed}") / PARTITION
            if not path.is_file():
                continue
            frame = _read(path, kind)
            if kind.per_seed:
                frame = frame.assign(seed=seed)
            else:
                self._check_identity(path, frame, cell)
            if file not in FILES:
                self._check_provenance(path, frame, cell, self.analyses[file])
            if not frame.empty:
                frames.append(frame.assign(**dict(zip(IDS, cell.ids, strict=True))))
        whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
        return whole.reindex(columns=columns)

    def _identities(self, cell: str) -> dict[int, str]:
        """By seed, of the runs that the experiment has in a cell now."""
        if cell not in self._known:
            self._known[cell] = {run.seed: run.identity for run in self.experiment.cell(cell).runs}
        return self._known[cell]

    @cached_property
    def _known(self) -> dict[str, dict[int, str]]:
        return {}

    def _check_identity(self, path: Path, frame: pd.DataFrame, cell: CellKey) -> None:
        wanted = self._identities(cell.path)
        for seed, identity in frame[["seed", "identity"]].drop_duplicates().itertuples(index=False, name=None):
            if wanted.get(seed) != identity:
                raise UserError(f"'{path}' holds seed {seed} of another configuration{self._told(cell, int(seed))}")

    def _check_provenance(self, path: Path, frame: pd.DataFrame, cell: CellKey, analysis: Analysis) -> None:
        options = name_value_pairs(analysis.options().items())
        others = {label: cell.compared_with(label, self.experiment).path for label in analysis.compared_labels()}
        rows = frame[["seed", "options", "compared_with"]].astype(object).fillna("").drop_duplicates()
        for seed, stated, compared_with in rows.itertuples(index=False, name=None):
            anew = f"than experiment {self.experiment.name} has now: make it anew with snakemake"
            if (difference := first_difference(stated, options)) is not None:
                raise UserError(f"'{path}' was made with other options ({difference}) {anew}")
            if compared_with != name_value_pairs(
                (label, self._identities(other)[seed]) for label, other in others.items()
            ):
                raise UserError(f"'{path}' compares with other runs of {', '.join(others)} {anew}")

    def _told(self, cell: CellKey, seed: int) -> str:
        """What differs from the experiment, and what can be done about it."""
        wanted = {run.seed: run for run in self.experiment.cell(cell.path).runs}
        place = self.results / "runs" / self.experiment.name / cell.path / f"seed-{seed}"
        if seed not in wanted:
            return f" than that of experiment {self.experiment.name}, whose seeds are {', '.join(map(str, wanted))}"
        difference = first_difference_of_configs(RunDirectory(place).config, wanted[seed]) if place.exists() else None
        if difference is None:
            return ": its run is gone, or has been replaced since; make it anew with snakemake"
        return (
            f" than that of experiment {self.experiment.name} ({difference}): give the --set values that its runs had, "
            "or train the cell anew (snakemake ... --config replace=true)"
        )


def of_setting(frame: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """The rows of one setting."""
    return _where(frame, setting.path.split("/"))


def of_cell(frame: pd.DataFrame, cell: CellKey) -> pd.DataFrame:
    """The rows of one cell."""
    return _where(frame, cell.ids)


def _where(frame: pd.DataFrame, ids: Sequence[str]) -> pd.DataFrame:
    mask = np.ones(len(frame), dtype=bool)
    for column, value in zip(IDS, ids, strict=False):
        mask &= (frame[column] == value).to_numpy()
    return frame[mask]


# As text even where it looks like a number: hashes of sixteen digits, or such as 12345678901234e5.
_TEXT = dict.fromkeys(["experiment", *IDS, "identity", *PROVENANCE_COLUMNS], str)


def _read(path: Path, kind: TidyFile) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path, dtype=_TEXT)
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise UserError(f"cannot read '{path}': {' '.join(str(error).split())}") from None
    missing = [column for column in kind.columns if column not in frame]
    if missing:
        raise UserError(f"'{path}' lacks the column {missing[0]} (it has: {', '.join(map(str, frame.columns))})")
    return frame
