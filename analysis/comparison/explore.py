"""The interactive page of an experiment, of stored baselines, or of a comparison with them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from fedflat.analysis.analyses.landscape.surface import Surface
from fedflat.analysis.comparison.baselines import folder_of, load, stored_experiment
from fedflat.analysis.comparison.compare import STORED, Comparison
from fedflat.analysis.comparison.run_table import FinishedRun, curve_table, finished_runs, rule_of, run_table
from fedflat.analysis.explorer.page import Explorer
from fedflat.analysis.figures.palette import Style, line_look, own_style, style, styles
from fedflat.analysis.layouts.protocol import final_at_scale
from fedflat.analysis.measures.convergence import FinalValue
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.files import experiment_names
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.experiments.sections.method_choice import MethodChoice
from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.errors import UserError


def render_explorer(requested: RequestedExperiment, out: Path | None = None, *, links_report: bool = False) -> Path:
    """Write the interactive page of an experiment's finished runs; `out` None: next to its report.

    A page next to the report links it if it exists; with `links_report`, also if it does not.
    A `UserError` if no run is finished.
    """
    finished = finished_runs(requested)
    if not finished:
        train = requested.snakemake(f"{requested.target}_runs")
        where = f"experiment {requested.experiment.name} under '{requested.results}'"
        raise UserError(f"no finished run of {where}; train them with: {train}")
    file = out or requested.report_paths.explorer
    write_text(file, _explorer(requested, finished, file, links_report=links_report).page())
    return file


def _explorer(
    requested: RequestedExperiment, finished: Sequence[FinishedRun], file: Path, *, links_report: bool
) -> Explorer:
    experiment = requested.experiment
    planned = sum(len(cell.runs) for cell in experiment.cells().values())
    runs = run_table(requested, finished)
    final = final_at_scale(FinalValue.named(experiment.report or "last"), experiment)
    report = requested.report_paths.page
    is_linked = report.parent == file.parent and (links_report or report.is_file())
    return Explorer(
        title=f"FedFlat: {experiment.name}",
        description=f"{experiment.description} {len(runs)} of {planned} runs are finished.",
        runs=runs.assign(experiment=requested.name_or_file),
        curves=curve_table(requested, finished),
        looks=styles(experiment),
        reported=final.description,
        surfaces=_surfaces(requested, runs),
        own=next(iter(experiment.own_methods), None),
        links={"Tables and figures": report.name} if is_linked else {},
    )


def render_stored(grid: str, results: Path, out: Path | None = None, baselines: Path | None = None) -> Path:
    """Write the interactive page of the stored baselines of a grid; `out` None: stored.html in its folder of reports.

    `baselines`: the folder of stored baselines; None: that of the grid.
    """
    stored = load(grid, baselines)
    page = Explorer(
        title=f"FedFlat: {grid}",
        description=f"{len(stored.runs):,} stored runs.",
        runs=_with_commands(stored.runs, baselines or folder_of(grid)),
        curves=stored.curves,
        looks=_looks(stored.runs),
        reported=rule_of(stored.runs["report"].iloc[0]).description,
    )
    file = out or ResultPaths(results).report(grid).folder / "stored.html"
    write_text(file, page.page())
    return file


def _with_commands(rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """The rows with the name or the file of their experiment, as commands need it; nothing if neither is known."""
    known = {name: name for name in experiment_names()}
    files = {name: stored_experiment(folder, name) for name in set(rows["experiment"]) - set(known)}
    known |= {name: str(file) for name, file in files.items() if file.is_file()}
    return rows.assign(experiment=rows["experiment"].map(known).fillna(""))


def render_comparison(comparison: Comparison, file: Path, verdict: str, links: Mapping[str, str]) -> None:
    """Write the interactive page of a comparison; `verdict`: Markdown, `links`: further pages, by title."""
    rows = _with_commands(comparison.rows, comparison.baselines or folder_of(comparison.grid))
    rows.loc[rows["method"] == comparison.method, "experiment"] = comparison.source
    rows.loc[rows["method"].str.endswith(STORED), "experiment"] = ""  # a label that the experiment does not have
    page = Explorer(
        title=f"FedFlat: {comparison.titles[comparison.method]} and the baselines of {comparison.grid}",
        description=f"{len(rows)} runs; the rivals are stored, with {comparison.variant} values.",
        runs=rows,
        curves=comparison.curves,
        looks=_looks(rows, comparison.method),
        reported=rule_of(rows["report"].iloc[0]).description,
        own=comparison.method,
        verdict=verdict,
        links=links,
    )
    write_text(file, page.page())


def _looks(rows: pd.DataFrame, own: str | None = None) -> dict[str, Style]:
    """The colour and line of each method, by its label; `own` has those of a user's method."""
    looks: dict[str, Style] = {}
    seen: Counter[str] = Counter()
    for label, configuration in rows.drop_duplicates("method")[["method", "configuration"]].itertuples(index=False):
        if label == own:
            looks[label] = own_style(0)
            continue
        chosen = {name: value for name, value in json.loads(configuration)["method"].items() if name != "code"}
        try:
            recipe = MethodChoice.parse(chosen, label).recipe
        except UserError:  # a stored method of a user whose file is not there
            looks[label] = line_look(len(looks))
        else:
            looks[label] = style(recipe, seen[recipe.name])
            seen[recipe.name] += 1
    return looks


def _surfaces(requested: RequestedExperiment, runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of all analyses of loss surfaces that are computed for these runs."""
    names = [name for name, analysis in requested.analyses.items() if isinstance(analysis, Surface)]
    rows = [requested.tidy.gather(name, requested.experiment.addresses).assign(name=name) for name in names]
    found = pd.concat(rows, ignore_index=True)
    return found.merge(runs[["identity", "method", "variant"]], on=["identity", "method"])
