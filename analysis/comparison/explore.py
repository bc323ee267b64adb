"""The interactive page of an experiment, from its finished runs and the analyses that are computed."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.analyses.landscape.surface import Surface
from analysis.comparison.run_table import FinishedRun, curve_table, finished_runs, run_table
from analysis.explorer.page import Explorer
from analysis.figures.palette import styles
from analysis.layouts.protocol import final_at_scale
from analysis.measures.convergence import FinalValue
from analysis.report.requested import RequestedExperiment
from bench.files.atomic import write_text
from bench.input.errors import UserError


def render_explorer(requested: RequestedExperiment, out: Path | None = None) -> Path:
    """Write the interactive page of an experiment's finished runs; `out` None: next to its report.

    A `UserError` if no run is finished.
    """
    finished = finished_runs(requested)
    if not finished:
        train = requested.snakemake(f"{requested.target}_runs")
        where = f"experiment {requested.experiment.name} under '{requested.results}'"
        raise UserError(f"no finished run of {where}; train them with: {train}")
    file = out or requested.report_paths.explorer
    write_text(file, _explorer(requested, finished, file).page())
    return file


def _explorer(requested: RequestedExperiment, finished: Sequence[FinishedRun], file: Path) -> Explorer:
    experiment = requested.experiment
    planned = sum(len(cell.runs) for cell in experiment.cells().values())
    runs = run_table(requested, finished)
    final = final_at_scale(FinalValue.named(experiment.report or "last"), experiment)
    report = requested.report_paths.page
    return Explorer(
        title=f"FedFlat: {experiment.name}",
        description=f"{experiment.description} {len(runs)} of {planned} runs are finished.",
        runs=runs.assign(experiment=requested.name_or_file),
        curves=curve_table(requested, finished),
        looks=styles(experiment),
        reported=final.description,
        surfaces=_surfaces(requested, runs),
        own=next(iter(experiment.own_methods), None),
        links={"Tables and figures": report.name} if report.parent == file.parent and report.is_file() else {},
    )


def _surfaces(requested: RequestedExperiment, runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of all analyses of loss surfaces that are computed for these runs."""
    names = [name for name, analysis in requested.analyses.items() if isinstance(analysis, Surface)]
    rows = [requested.tidy.gather(name, requested.experiment.addresses).assign(name=name) for name in names]
    found = pd.concat(rows, ignore_index=True)
    return found.merge(runs[["identity", "method", "variant"]], on=["identity", "method"])
