"""Rendering by name, as the command and Snakemake call it: tables, figures, the report page, a summary."""

from pathlib import Path

from analysis import figures, tables
from analysis.convergence import FinalValue, diverged_seeds, final_values
from analysis.index_page import FigurePart, page
from analysis.layout import layout_names
from analysis.table_formats import FORMATS
from analysis.tidy import CellKey, Tidy, settings, titles
from bench.atomic import write_text
from bench.config import load_experiment
from bench.errors import UserError


def table_names(experiment: str) -> list[str]:
    """The tables of an experiment."""
    return layout_names(experiment, "tables")


def figure_names(experiment: str) -> list[str]:
    """The figures of an experiment."""
    return layout_names(experiment, "figures")


def report_folder(experiment: str, results: Path) -> Path:
    """Where an experiment's report lies."""
    return results / "reports" / load_experiment(experiment).name


def render_table(experiment: str, name: str, results: Path, out: Path | None = None) -> list[Path]:
    """Write a table as Markdown, LaTeX and CSV to `out` (default: the report's tables/); return the files."""
    layout = tables.load_table(experiment, name)
    table = tables.fill(name, layout, Tidy(results, load_experiment(experiment)))
    folder = out or report_folder(experiment, results) / "tables"
    files = {folder / f"{name}.{extension}": render(table) for extension, render in FORMATS.items()}
    for file, text in files.items():
        write_text(file, text)
    return list(files)


def render_figure(experiment: str, name: str, results: Path, out: Path | None = None) -> list[Path]:
    """Draw a figure as PNG and PDF to `out` (default: the report's figures/); return the files."""
    layout = figures.load_figure(experiment, name)
    figure = figures.draw(layout, Tidy(results, load_experiment(experiment)))
    return figures.save(figure, (out or report_folder(experiment, results) / "figures") / name)


def render_index(experiment: str, results: Path) -> Path:
    """Write the page that gathers all tables and figures; a figure that has not been drawn says so."""
    tidy, folder = Tidy(results, load_experiment(experiment)), report_folder(experiment, results)
    filled = [
        tables.fill(name, tables.load_table(experiment, name), tidy) for name in table_names(experiment)
    ]
    figure_parts = []
    for name in figure_names(experiment):
        layout = figures.load_figure(experiment, name)
        drawn = (folder / "figures" / f"{name}.png").is_file()
        figure_parts.append(FigurePart(name, layout.title, figures.caption(layout, tidy), drawn))
    path = folder / "index.html"
    write_text(path, page(tidy.experiment, _headline(tidy), filled, figure_parts))
    return path


def render_all(experiment: str, results: Path) -> list[Path]:
    """All tables, all figures that have data, and the page."""
    written = [file for name in table_names(experiment) for file in render_table(experiment, name, results)]
    for name in figure_names(experiment):
        layout = figures.load_figure(experiment, name)
        if any((results / file).is_file() for file in figures.inputs(layout, load_experiment(experiment))):
            written += render_figure(experiment, name, results)
    return [*written, render_index(experiment, results)]


def summary(experiment: str, results: Path) -> str:
    """Three to five lines: how many runs, which method leads, where the report lies."""
    folder = report_folder(experiment, results)
    lines = _headline(Tidy(results, load_experiment(experiment)))
    return "\n".join(
        [
            *lines,
            f"report: {folder / 'index.html'}",
            f"tables: {folder / 'tables'}, figures: {folder / 'figures'}",
        ]
    )


def _headline(tidy: Tidy) -> list[str]:
    """Counts of runs, and the leading method with the runner-up."""
    experiment = tidy.experiment
    places = settings(experiment)
    metrics = tidy.gather(
        "metrics", [CellKey(place, method) for place in places for method in experiment.methods]
    )
    if metrics.empty:
        raise UserError(f"no run of experiment {experiment.name} under '{tidy.results}'")
    runs = diverged_seeds(metrics)
    planned = len(places) * len(experiment.methods) * len(experiment.grid.seeds)
    finished, diverged = runs["seeds"].sum(), runs["diverged"].sum()
    lines = [f"{experiment.name}: {finished} of {planned} runs, {diverged} of them diverged"]

    final = FinalValue()
    values = final_values(metrics, "test_accuracy", final, "higher")
    complete = [
        method
        for method, rows in values.groupby("method")
        if len(rows) == planned // len(experiment.methods) and rows["value"].notna().all()
    ]
    means = (
        values[values["method"].isin(complete)].groupby("method")["value"].mean().sort_values(ascending=False)
    )
    names = titles(experiment)
    ranked = [f"{names[str(method)]} with {mean:.2f} %" for method, mean in means.items()]
    if ranked:
        runner_up = f", then {ranked[1]}" if len(ranked) > 1 else ""
        lines.append(
            f"highest mean test accuracy over {len(places)} setting{'s' if len(places) > 1 else ''} "
            f"({final.description}): {ranked[0]}{runner_up}"
        )
    else:
        lines.append("no method has finished all settings without divergence: none leads")
    return lines
