"""The files and folders of results: `ResultPaths` composes every path and finds the cell to which a file belongs.

    runs/EXPERIMENT/CELL/metrics.csv                       metrics of all seeds of a cell
    runs/EXPERIMENT/CELL/seed-N/                           one run directory
    tuning/EXPERIMENT/CELL/trials.csv                      trials of a cell
    tuning/EXPERIMENT/tuned.yaml                           the experiment with the values of the best trials
    search/GRID/EXPERIMENT/CELL/tuning-N/trials.csv        trials of a method by a grid's protocol, with a tuning seed
    search/GRID/NAME.yaml                                  an experiment with the values of their best trials
    compare/GRID/LABEL.yaml                                the experiment of a method that is compared with baselines
    analysis/EXPERIMENT/CELL/NAME.csv                      one analysis of all seeds of a cell
    partitions/EXPERIMENT/CELL/seed-N/partition.csv.gz     the split of a run, drawn without training
    partitions/EXPERIMENT/DATASET/PARTITION/N-clients/...  pictures and tables of `fedflat data partition`
    reports/EXPERIMENT/tables, figures, index.html         reports/EXPERIMENT_best/... for another reported value
    reports/EXPERIMENT/explore.html                        the interactive page
    logs/EXPERIMENT/...                                    output of Snakemake's jobs
    baselines/GRID/                                        stored runs with which `fedflat compare` compares
    imported/NAME/results/...                              a folder of results from an archive of `fedflat export`

EXPERIMENT is custom/NAME for single runs with overrides, and for analyses that are not part of an experiment.
"""

from dataclasses import dataclass
from pathlib import Path

from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.files.left_out import is_folder

METRICS, PARTITION = "metrics.csv", "partition.csv.gz"
"""Names of files that a run writes."""

TRIALS = "trials.csv"
"""The name of the file of a cell's trials."""

RUN_FILES = ("metrics", "partition")
"""Kinds of tidy files that runs write; every other kind is the name of an analysis."""

RESERVED = (*RUN_FILES, "train")
"""Names that no analysis may have, because other files and logs have them."""

IMAGES = ("png", "pdf")
"""The formats of figures."""

CHECKSUMS = "checksums.sha256"
"""The file with the SHA-256 of every other file of an archive, as `sha256sum --check` reads it."""

CUSTOM = "custom"


def custom(experiment: str) -> str:
    """The folder of an experiment's runs with overrides; it replaces the experiment's name in `ResultPaths`."""
    return f"{CUSTOM}/{experiment}"


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

    def cell(self, experiment: str, cell: str) -> Path:
        """The folder of a cell's runs."""
        return self.root / "runs" / experiment / cell

    def run(self, experiment: str, cell: str, seed: int | str) -> Path:
        """The directory of one run."""
        return run_in(self.cell(experiment, cell), seed)

    def metrics(self, experiment: str, cell: str) -> Path:
        """The metrics of all runs of a cell; it is written when all are finished."""
        return self.cell(experiment, cell) / METRICS

    def analysis(self, experiment: str, cell: str, name: str) -> Path:
        """The tidy file of one analysis of a cell's runs."""
        return self.root / "analysis" / experiment / cell / f"{name}.csv"

    def partition(self, experiment: str, cell: str, seed: int | str) -> Path:
        """The file of a run's split, drawn without training."""
        return run_in(self.root / "partitions" / experiment / cell, seed) / PARTITION

    def drawn_partition(self, experiment: str, dataset: str, partition: str, clients: int, seed: int) -> Path:
        """The folder in which `fedflat data partition` stores one split."""
        return run_in(self.root / "partitions" / experiment / dataset / partition / f"{clients}-clients", seed)

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
        """A tidy file by its kind: metrics, partition (of one seed), or an analysis."""
        if kind == "partition":
            return self.partition(experiment, cell, seed)
        return self.metrics(experiment, cell) if kind == "metrics" else self.analysis(experiment, cell, kind)

    def report(self, experiment: str, reported: str | None = None) -> "ReportPaths":
        """The files of a report. `reported`: the value of a run that it shows; None: the experiment's."""
        return ReportPaths(self.root / "reports" / (experiment if reported is None else f"{experiment}_{reported}"))

    def log(self, experiment: str, name: str, cell: str = "") -> Path:
        """The output of one of Snakemake's jobs."""
        return self.root / "logs" / experiment / cell / f"{name}.log"

    def baselines(self, grid: str) -> Path:
        """The folder to which the stored baselines of a grid are written; `installed` says from where they are read."""
        return self.root / "baselines" / grid

    def cell_of(self, file: Path) -> tuple[str, CellAddress] | None:
        """The experiment and the cell to which a tidy file, a run directory or trials belong; None for other files."""
        if self.root not in file.parents:
            return None
        kind, *below = file.relative_to(self.root).parts
        if kind not in {"runs", "analysis", "partitions", "tuning"}:
            return None
        after = 2 if below[:1] == [CUSTOM] else 1
        experiment, place = "/".join(below[:after]), below[after:]
        return (experiment, CellAddress.of("/".join(place[:4]))) if len(place) > 4 else None


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


def runs_folder(run: Path) -> Path | None:
    """The folder with the runs of all experiments that contains the run; None if it is not in a folder of results."""
    runs = Path(*run.absolute().parts[:-6])
    if runs.name == CUSTOM:
        runs = runs.parent
    return runs if runs.name == "runs" else None


def same_setting(run: Path) -> list[Path]:
    """The existing folders of a run's setting in all experiments of the results that contain the run.

    `run`: the directory of a run. Empty if it is not in a folder of results.
    """
    runs, setting = runs_folder(run), run.absolute().parts[-5:-2]
    if runs is None:
        return []
    experiments = [folder for place in (runs, runs / CUSTOM) if place.is_dir() for folder in sorted(place.iterdir())]
    return [place for experiment in experiments if is_folder(place := experiment.joinpath(*setting))]


def same_run_of_others(run: Path) -> list[Path]:
    """The existing folders of the same cell and seed in the other experiments; `run` as for `same_setting`."""
    here = run.absolute()
    places = [setting.joinpath(*here.parts[-2:]) for setting in same_setting(run)]
    return [place for place in places if is_folder(place) and place != here]


def custom_analysis(folder: Path, name: str) -> Path:
    """The default output of `fedflat analyse`: analysis/custom/... for runs/..., else `folder`/analysis/NAME.csv.

    The experiment's analysis file is not overwritten: tables assume that it was computed with the experiment's options.
    """
    parts = folder.absolute().parts
    if "runs" not in parts:
        return folder / "analysis" / f"{name}.csv"
    last = len(parts) - 1 - parts[::-1].index("runs")
    below = parts[last + 2 :] if parts[last + 1 : last + 2] == (CUSTOM,) else parts[last + 1 :]
    return Path(*parts[:last], "analysis", CUSTOM, *below, f"{name}.csv")
