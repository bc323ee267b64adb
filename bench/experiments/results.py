"""The files and folders of results: `ResultPaths` composes every path and finds the cell to which a file belongs.

store/DATASET/PARTITION/PARTICIPATION/NAME-HASH/seed-N/          one run, where `RunConfig.place` says
store/.../seed-N/analyses/NAME-HASH.csv                          one analysis of it
experiments/EXPERIMENT/CELL/runs.csv                             the list of the runs of a cell
experiments/EXPERIMENT/CELL/NAME.csv                             the list of the files of an analysis of them
tuning/EXPERIMENT/CELL/trials.csv                                trials of a cell
tuning/EXPERIMENT/tuned.yaml                                     the experiment with the values of the best trials
search/GRID/EXPERIMENT/CELL/tuning-N/trials.csv                  trials by a grid's protocol, with a tuning seed
search/GRID/NAME.yaml                                            an experiment with the values of their best trials
compare/GRID/LABEL.yaml                                          that of a method that is compared with baselines
partitions/EXPERIMENT/CELL/seed-N/partition.csv.gz               the split of a run, drawn without training
partitions/EXPERIMENT/DATASET/PARTITION/N-clients/...            what `fedflat data partition` draws
reports/EXPERIMENT/tables, figures, index.html                   reports/EXPERIMENT_best/... for another value
reports/EXPERIMENT/explore.html                                  the interactive page
logs/EXPERIMENT/...                                              output of Snakemake's jobs
baselines/GRID/                                                  runs with which `fedflat compare` compares
imported/NAME/results/...                                        results from an archive of `fedflat export`
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedflat.bench.experiments.address import CellAddress

if TYPE_CHECKING:
    from fedflat.bench.experiments.run_config import RunConfig

METRICS, PARTITION = "metrics.csv", "partition.csv.gz"
"""Names of files that a run writes."""

TRIALS = "trials.csv"
"""The name of the file of a cell's trials."""

RUN_FILES = ("metrics", "partition")
"""Kinds of tidy files that runs write; every other kind is the name of an analysis."""

RUNS = "runs"
"""The name of the list of a cell's runs, without its ending."""

RESERVED = (*RUN_FILES, RUNS, "train")
"""Names that no analysis may have, because other files and logs have them."""

IMAGES = ("png", "pdf")
"""The formats of figures."""

CHECKSUMS = "checksums.sha256"
"""The file with the SHA-256 of every other file of an archive, as `sha256sum --check` reads it."""

STORE = "store"
"""The name of the folder with all runs."""


def elsewhere(results: Path) -> str:
    """Where the nearest folder above has results, for the end of a message; empty if none has."""
    above = (folder / results.name for folder in results.absolute().parent.parents)
    found = next((folder for folder in above if Path(folder / STORE).is_dir()), None)
    return "" if found is None else f" (the nearest results above are in '{found}'; --results {found} uses them)"


@dataclass(frozen=True)
class ResultPaths:
    """Paths of an experiment's results below `root`.

    `cell` is a path such as digits/dirichlet-0.1/4-of-20/fedsam. Any argument may be a wildcard of Snakemake, such as
    {experiment}.
    """

    root: Path = Path("results")

    @property
    def unpacked(self) -> bool:
        """Whether the folder is part of an archive that `fedflat import` has unpacked."""
        return (self.root.parent / CHECKSUMS).is_file()

    @property
    def store(self) -> Path:
        """The folder of all runs."""
        return self.root / STORE

    def run(self, config: "RunConfig") -> Path:
        """The directory of one run."""
        return self.store / config.place

    def lists(self, experiment: str, cell: str = "") -> Path:
        """The folder of the lists of a cell; without `cell`, of all cells of an experiment."""
        return self.root / "experiments" / experiment / cell

    def runs(self, experiment: str, cell: str) -> Path:
        """The list of the runs of a cell; it is written when all are finished."""
        return self.lists(experiment, cell) / f"{RUNS}.csv"

    def analysis(self, experiment: str, cell: str, name: str) -> Path:
        """The list of the files of an analysis of a cell's runs; `name`: its name in the experiment."""
        return self.lists(experiment, cell) / f"{name}.csv"

    def partition(self, experiment: str, cell: str, seed: int | str) -> Path:
        """The file of a run's split, drawn without training."""
        return run_in(self.splits(experiment) / cell, seed) / PARTITION

    def drawn_partition(self, experiment: str, dataset: str, partition: str, clients: int, seed: int) -> Path:
        """The folder in which `fedflat data partition` stores one split."""
        return run_in(self.splits(experiment) / dataset / partition / f"{clients}-clients", seed)

    def splits(self, experiment: str) -> Path:
        """The folder of all splits of an experiment that are drawn without training."""
        return self.root / "partitions" / experiment

    def tuning(self, experiment: str, cell: str) -> Path:
        """The folder of the trials of a cell."""
        return self.root / "tuning" / experiment / cell

    def trials(self, experiment: str, cell: str) -> Path:
        """The trials of a cell; the file is written when its search has ended."""
        return self.tuning(experiment, cell) / TRIALS

    def tuned(self, experiment: str) -> Path:
        """The experiment's file with tuned values."""
        return self.root / "tuning" / experiment / "tuned.yaml"

    def search(self, grid: str) -> Path:
        """The folder of the searches by a grid's protocol."""
        return self.root / "search" / grid

    def searched(self, grid: str, experiment: str, cell: str, name: str) -> Path:
        """The folder of the trials of a cell; `name`: tuning-N with the tuning seed."""
        return self.search(grid) / experiment / cell / name

    def compared(self, grid: str, label: str) -> Path:
        """The experiment's file of a method that is compared with the baselines of a grid."""
        return self.root / "compare" / grid / f"{label}.yaml"

    def tidy(self, experiment: str, cell: str, kind: str, seed: int | str = 0) -> Path:
        """What has the rows of a kind, or lists the files that do: metrics, partition (of one seed), or an analysis."""
        if kind == "partition":
            return self.partition(experiment, cell, seed)
        return self.runs(experiment, cell) if kind == "metrics" else self.analysis(experiment, cell, kind)

    def report(self, experiment: str, reported: str | None = None) -> "ReportPaths":
        """The files of a report. `reported`: the value of a run that it shows; None: the experiment's."""
        return ReportPaths(self.root / "reports" / (experiment if reported is None else f"{experiment}_{reported}"))

    def log(self, experiment: str, name: str, cell: str = "") -> Path:
        """The output of one of Snakemake's jobs."""
        return self.root / "logs" / experiment / cell / f"{name}.log"

    def baselines(self, grid: str) -> Path:
        """The folder of the stored baselines of a grid."""
        return self.root / "baselines" / grid

    def cell_of(self, file: Path) -> tuple[str, CellAddress] | None:
        """The experiment and the cell to which a list, a split or trials belong; None for other files."""
        if self.root not in file.parents:
            return None
        kind, *below = file.relative_to(self.root).parts
        if kind not in {"experiments", "partitions", "tuning"} or len(below) < 6:
            return None
        return below[0], CellAddress.of("/".join(below[1:5]))


@dataclass(frozen=True)
class ReportPaths:
    """Paths of a report's files below its folder."""

    folder: Path = Path()

    @property
    def page(self) -> Path:
        """The page with all tables and figures."""
        return self.folder / "index.html"

    @property
    def explorer(self) -> Path:
        """The interactive page with all runs."""
        return self.folder / "explore.html"

    @property
    def claims(self) -> Path:
        """The page with the claims of a paper."""
        return self.folder / "claims.md"

    @property
    def comparison(self) -> Path:
        """The folder of the comparison with stored baselines."""
        return self.folder / "comparison"

    @property
    def study(self) -> Path:
        """The folder of the study of flatness."""
        return self.folder / "study"

    @property
    def tuning(self) -> Path:
        """The folder of the report on tuning."""
        return self.folder / "tuning"

    @property
    def tables(self) -> Path:
        """The folder of all tables."""
        return self.folder / "tables"

    @property
    def figures(self) -> Path:
        """The folder of all figures."""
        return self.folder / "figures"

    def table(self, name: str) -> list[Path]:
        """The files of a table, one in each format."""
        return [self.tables / f"{name}.{extension}" for extension in ("md", "tex", "csv", "html")]

    def figure(self, name: str) -> list[Path]:
        """The files of a figure: two images, and the caption."""
        return [self.figures / f"{name}.{extension}" for extension in (*IMAGES, "md")]


def run_in(cell_folder: Path, seed: int | str) -> Path:
    """The directory of the run with a seed in the folder of its cell."""
    return cell_folder / f"seed-{seed}"
