"""An experiment's report, as the command and Snakemake ask for it: tables, figures, one page, a summary."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis import figures, tables
from analysis.convergence import FinalValue, diverged_seeds, final_values
from analysis.index_page import FigurePart, page
from analysis.layout import layout_file, layout_names
from analysis.table_formats import FORMATS
from analysis.tidy import CellKey, Tidy, settings, titles
from bench.atomic import write_text
from bench.config import Experiment, load_experiment
from bench.errors import UserError


@dataclass(frozen=True)
class Report:
    """Tables and figures of an experiment, from the tidy files under `results`.

    `source` is the experiment's name, or its YAML file; layouts lie beside that file. `changes` are the values of the
    experiment that its runs changed.
    """

    source: str
    results: Path
    changes: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment, with its changed values."""
        return load_experiment(self.source, self.changes)

    @property
    def tidy(self) -> Tidy:
        """Its tidy files."""
        return Tidy(self.results, self.experiment)

    @property
    def folder(self) -> Path:
        """Where the report lies."""
        return self.results / "reports" / self.experiment.name

    def table_names(self) -> list[str]:
        """All tables, sorted."""
        return layout_names(self.source, "tables")

    def figure_names(self) -> list[str]:
        """All figures, sorted."""
        return layout_names(self.source, "figures")

    def table_inputs(self, name: str) -> list[Path]:
        """The files that a table is made from: its layout, and tidy files that may not exist yet."""
        files = tables.inputs(tables.load_table(self.source, name), self.experiment)
        return [layout_file(self.source, "tables", name), *(self.results / file for file in files)]

    def figure_inputs(self, name: str) -> list[Path]:
        """The files that a figure is made from: its layout, and tidy files that may not exist yet."""
        files = figures.load_figure(self.source, name).inputs(self.experiment)
        return [layout_file(self.source, "figures", name), *(self.results / file for file in files)]

    def render_table(self, name: str) -> list[Path]:
        """Write a table as Markdown, LaTeX and CSV; return the files."""
        table = tables.fill(name, tables.load_table(self.source, name), self.tidy)
        files = {self.folder / "tables" / f"{name}.{extension}": render(table) for extension, render in FORMATS.items()}
        for file, text in files.items():
            write_text(file, text)
        return list(files)

    def render_figure(self, name: str) -> list[Path]:
        """Draw a figure as PNG and PDF; return the files."""
        figure = figures.draw(figures.load_figure(self.source, name), self.tidy)
        return figures.save(figure, self.folder / "figures" / name)

    def render_page(self) -> Path:
        """Write the page that gathers all tables and figures; a figure that has not been drawn says so."""
        filled = [tables.fill(name, tables.load_table(self.source, name), self.tidy) for name in self.table_names()]
        figure_parts = []
        for name in self.figure_names():
            layout = figures.load_figure(self.source, name)
            drawn = (self.folder / "figures" / f"{name}.png").is_file()
            figure_parts.append(FigurePart(name, layout.title, figures.caption(layout, self.tidy), drawn))
        path = self.folder / "index.html"
        write_text(path, page(self.experiment, _headline(self.tidy), filled, figure_parts))
        return path

    def summary(self) -> str:
        """A few lines: how many runs, which method leads, where the report lies."""
        return "\n".join(
            [
                *_headline(self.tidy),
                f"report: {self.folder / 'index.html'}",
                f"tables: {self.folder / 'tables'}, figures: {self.folder / 'figures'}",
            ]
        )


def _headline(tidy: Tidy) -> list[str]:
    """Counts of runs, and the leading method with the runner-up."""
    experiment = tidy.experiment
    places = settings(experiment)
    metrics = tidy.gather("metrics", [CellKey(place, method) for place in places for method in experiment.methods])
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
    means = values[values["method"].isin(complete)].groupby("method")["value"].mean().sort_values(ascending=False)
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
