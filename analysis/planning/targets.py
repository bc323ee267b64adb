"""The targets of Snakemake: an experiment's page, its runs, an analysis of them, a table, a figure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from analysis.report.checked_layouts import CheckedLayouts
from analysis.report.figures import Figures
from analysis.report.requested import RequestedExperiment
from analysis.report.tables import Tables

Files = Callable[[], list[Path]]
"""Lists files when it is called: no experiment is read before one of its targets is requested."""
Names = Callable[[], Sequence[str]]


@dataclass(frozen=True)
class Target:
    """A target. `outputs`: the files that Snakemake writes; `inputs`: the layouts and tidy files that they need."""

    requested: RequestedExperiment
    outputs: Files
    inputs: Files


def rendered(layouts: CheckedLayouts[Any], names: Names) -> Target:
    """Tables or figures of an experiment."""
    return Target(
        layouts.requested,
        lambda: [file for name in names() for file in layouts.outputs(name)],
        lambda: [file for name in names() for file in layouts.inputs(name)],
    )


def page_contents(requested: RequestedExperiment) -> Target:
    """The tables and figures that the page of an experiment shows."""
    parts = [rendered(layouts, layouts.shown) for layouts in (Tables(requested), Figures(requested))]
    return Target(
        requested,
        lambda: [file for part in parts for file in part.outputs()],
        lambda: [file for part in parts for file in part.inputs()],
    )


def targets_of(requested: RequestedExperiment) -> dict[str, Target]:
    """The targets of one experiment, by name."""
    paths, name = requested.paths, requested.target
    tables, figures = Tables(requested), Figures(requested)

    def runs() -> list[Path]:
        return [paths.metrics(requested.experiment.name, cell) for cell in requested.experiment.paths()]

    def analysed(analysis: str) -> list[Path]:
        return [paths.analysis(requested.experiment.name, cell, analysis) for cell in requested.analysed(analysis)]

    found = {
        name: Target(requested, lambda: [requested.report_paths.page], page_contents(requested).inputs),
        f"{name}_runs": Target(requested, runs, runs),
    }
    for analysis in requested.analysis_names:
        files = partial(analysed, analysis)
        found[f"{name}_analysis_{analysis}"] = Target(requested, files, files)
    for table in tables.names():
        found[f"{name}_table_{table}"] = rendered(tables, partial(list, [table]))
    for figure, parts in ({f: [f] for f in figures.names()} | figures.subfigures()).items():
        found[f"{name}_figure_{figure}"] = rendered(figures, partial(list, parts))
    return found


def all_targets(experiments: Iterable[RequestedExperiment]) -> dict[str, list[Target]]:
    """The targets of several experiments, by name; all_tables and all_figures consist of one `Target` per paper."""
    experiments = list(experiments)
    papers = [requested for requested in experiments if requested.is_paper]
    return {
        "all_tables": [rendered(tables, tables.shown) for tables in map(Tables, papers)],
        "all_figures": [rendered(figures, figures.shown) for figures in map(Figures, papers)],
        **{name: [target] for requested in experiments for name, target in targets_of(requested).items()},
    }
