"""The targets of Snakemake: an experiment's page, its runs, an analysis of them, a table, a figure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from analysis.report.report import Report

TABLE_FORMATS = ("md", "tex", "csv", "html")
FIGURE_FORMATS = ("png", "pdf", "md")

Files = Callable[[], list[Path]]
"""Lists files when it is called: no experiment is read before one of its targets is requested."""
Names = Callable[[], Sequence[str]]


@dataclass(frozen=True)
class Target:
    """A target. `outputs`: the files that Snakemake writes; `inputs`: the layouts and tidy files that they need."""

    report: Report
    outputs: Files
    inputs: Files


def table_files(folder: Path, name: str) -> list[Path]:
    """The files of a table, in the folder of a report."""
    return [folder / "tables" / f"{name}.{extension}" for extension in TABLE_FORMATS]


def figure_files(folder: Path, name: str) -> list[Path]:
    """The files of a figure, in the folder of a report."""
    return [folder / "figures" / f"{name}.{extension}" for extension in FIGURE_FORMATS]


def tables(report: Report, names: Names) -> Target:
    """Tables of an experiment."""
    return Target(
        report,
        lambda: [file for name in names() for file in table_files(report.folder, name)],
        lambda: [file for name in names() for file in report.table_inputs(name)],
    )


def figures(report: Report, names: Names) -> Target:
    """Figures of an experiment."""
    return Target(
        report,
        lambda: [file for name in names() for file in figure_files(report.folder, name)],
        lambda: [file for name in names() for file in report.figure_inputs(name)],
    )


def page_contents(report: Report) -> Target:
    """The tables and figures that the page of an experiment shows."""
    parts = tables(report, report.tables_shown), figures(report, report.figures_shown)
    return Target(
        report,
        lambda: [file for part in parts for file in part.outputs()],
        lambda: [file for part in parts for file in part.inputs()],
    )


def targets_of(report: Report) -> dict[str, Target]:
    """The targets of one experiment, by name."""
    paths, name = report.paths, report.target

    def runs() -> list[Path]:
        return [paths.metrics(report.experiment.name, cell) for cell in report.experiment.paths()]

    def analysed(analysis: str) -> list[Path]:
        return [paths.analysis(report.experiment.name, cell, analysis) for cell in report.analysed(analysis)]

    found = {
        name: Target(report, lambda: [report.folder / "index.html"], page_contents(report).inputs),
        f"{name}_runs": Target(report, runs, runs),
    }
    for analysis in report.analysis_names:
        files = partial(analysed, analysis)
        found[f"{name}_analysis_{analysis}"] = Target(report, files, files)
    for table in report.table_names():
        found[f"{name}_table_{table}"] = tables(report, partial(list, [table]))
    for figure, parts in ({f: [f] for f in report.figure_names()} | report.subfigures()).items():
        found[f"{name}_figure_{figure}"] = figures(report, partial(list, parts))
    return found


def all_targets(reports: Iterable[Report]) -> dict[str, list[Target]]:
    """The targets of several experiments, by name; all_tables and all_figures consist of one `Target` per paper."""
    reports = list(reports)
    papers = [report for report in reports if report.is_paper]
    return {
        "all_tables": [tables(paper, paper.tables_shown) for paper in papers],
        "all_figures": [figures(paper, paper.figures_shown) for paper in papers],
        **{name: [target] for report in reports for name, target in targets_of(report).items()},
    }
