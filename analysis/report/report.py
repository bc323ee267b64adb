"""Render an experiment's report: tables, figures, the page that gathers them, and a summary."""

from dataclasses import dataclass
from pathlib import Path

from analysis.figures.draw import caption, draw, save
from analysis.report.checked_layouts import CheckedLayouts
from analysis.report.headline import headline
from analysis.report.page import PageFigure, figure_markdown, page, table_page
from analysis.tables.formats import FORMATS
from analysis.tables.layout import TableLayout
from analysis.tables.reproduction import with_published
from analysis.tables.table import Table, fill
from bench.files.atomic import write_text
from bench.input.errors import UserError


@dataclass(frozen=True)
class Report(CheckedLayouts):
    """An experiment with tables and figures that are rendered from the tidy files of its results."""

    @property
    def folder(self) -> Path:
        """The report's folder; a separate one if the override `report` requests another value of a run."""
        return self.paths.report(self.experiment.name, self.overrides.get("report"))

    def render_table(self, name: str) -> list[Path]:
        """Write a table as Markdown, LaTeX, CSV and HTML; return the files."""
        layout = self.table_layout(name)
        if not layout.methods:
            raise UserError(f"table {name} of {self.experiment.name} shows none of the methods {self.chosen_methods}")
        if layout.published is None or layout.cells(self.experiment):  # otherwise all its numbers are published ones
            self.check_runs(f"{self.target}_table_{name}")
        table = self._filled(name, layout)
        formats = {**FORMATS, "html": table_page}
        files = {self.folder / "tables" / f"{name}.{extension}": render(table) for extension, render in formats.items()}
        for file, text in files.items():
            write_text(file, text)
        return list(files)

    def render_figure(self, name: str) -> list[Path]:
        """Draw a figure as PNG and PDF, and write Markdown with its caption; return the files."""
        layout = self.figure_layout(name)
        if not layout.cells(self.experiment):
            raise UserError(f"figure {name} of {self.experiment.name} shows none of the methods {self.chosen_methods}")
        if not any(file.is_file() for file in layout.inputs(self.experiment, self.paths)):
            self.check_runs(f"{self.target}_figure_{name}")
        figure = draw(layout, self.tidy)
        text = figure_markdown(PageFigure(name, layout.title, caption(layout, self.tidy)))
        file = self.folder / "figures" / f"{name}.md"
        written = save(figure, file.with_suffix(""))
        write_text(file, text)
        return [*written, file]

    def render_page(self) -> Path:
        """Write the page that gathers all tables and figures; it says which figures have not been drawn."""
        self.check_runs(self.target)
        tables = [self._filled(name, self.table_layout(name)) for name in self.tables_shown()]
        figures = [self._page_figure(name) for name in self.figures_shown()]
        path = self.folder / "index.html"
        write_text(path, page(self.experiment, headline(self.tidy), tables, figures))
        return path

    def summary(self) -> str:
        """A few lines: how many runs are finished, which method leads, and where the report is stored."""
        self.check_runs(self.target)
        return "\n".join(
            [
                *headline(self.tidy),
                f"report: {self.folder / 'index.html'}",
                f"tables: {self.folder / 'tables'}, figures: {self.folder / 'figures'}",
            ]
        )

    def _filled(self, name: str, layout: TableLayout) -> Table:
        """The table, with the published numbers if the layout names a published table."""
        table = fill(name, layout, self.tidy)
        return table if layout.published is None else with_published(table, self.experiment, self.paper)

    def _page_figure(self, name: str) -> PageFigure:
        """A figure for the page. An outdated tidy file is reported in its place, and does not stop the page."""
        layout, stem = self.figure_layout(name), self.folder / "figures" / name
        files = tuple(kind for kind in ("png", "pdf", "md") if stem.with_name(f"{name}.{kind}").is_file())
        try:
            return PageFigure(name, layout.title, caption(layout, self.tidy), files)
        except UserError as error:
            return PageFigure(name, layout.title, f"Not shown: {error}")
