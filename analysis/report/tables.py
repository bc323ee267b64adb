"""The tables of an experiment: their layouts, the files that they read, and their rendering."""

from pathlib import Path

from fedflat.analysis.analyses.training.convergence import Convergence
from fedflat.analysis.layouts.protocol import with_trained_headings
from fedflat.analysis.layouts.quantities import quantity
from fedflat.analysis.published.numbers import papers
from fedflat.analysis.report.checked_layouts import CheckedLayouts, LayoutFile
from fedflat.analysis.report.page import table_page
from fedflat.analysis.tables.formats import FORMATS
from fedflat.analysis.tables.layout import Column, TableLayout, load_table
from fedflat.analysis.tables.quotations import Quotations, quotations
from fedflat.analysis.tables.reproduction import with_published
from fedflat.analysis.tables.table import Table, fill, inputs
from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.errors import UserError


class Tables(CheckedLayouts[TableLayout]):
    """The tables of an experiment."""

    folder = "tables"

    def outputs(self, name: str) -> list[Path]:
        """The files of a table, one in each format."""
        return self.requested.report_paths.table(name)

    def filled(self, name: str) -> Table:
        """A table with its values, and with the published numbers if its layout names a published table."""
        layout, requested = self.layout(name), self.requested
        table = fill(name, layout, requested.tidy, self._quotations(layout))
        return table if layout.published is None else with_published(table, requested.experiment, requested.paper)

    def render(self, name: str) -> list[Path]:
        """Write a table as Markdown, LaTeX, CSV and HTML; return the files."""
        layout, requested = self.rendered_layout(name), self.requested
        if layout.published is None or layout.cells(requested.experiment):  # otherwise all its numbers are published
            requested.check_runs(f"{requested.target}_table_{name}")
        table, files = self.filled(name), self.outputs(name)
        formats = {**FORMATS, "html": table_page}
        texts = [formats[file.suffix.removeprefix(".")](table) for file in files]
        for file, text in zip(files, texts, strict=True):
            write_text(file, text)
        return files

    def _adapted(self, source: LayoutFile) -> TableLayout:
        experiment = self.requested.experiment
        layout = load_table(source.experiment, source.name, experiment).adapted_to(experiment)
        columns = tuple(column for column in layout.columns if self._is_possible(column, layout))
        layout = layout.model_copy(update={"columns": columns}) if columns else layout
        return with_trained_headings(layout, experiment)

    def _shows_one_setting(self, source: LayoutFile) -> bool:
        return False

    def _suits(self, source: LayoutFile, part: str) -> bool:
        return True

    def _is_possible(self, column: Column, layout: TableLayout) -> bool:
        """Whether a column is shown: all are, except optional ones for which runs lack something."""
        if not column.optional:
            return True
        try:
            alone = layout.model_copy(update={"columns": (column,)})
            self._check_analysis(quantity(column.metric).file, column.file, alone)
        except UserError:
            return False
        return True

    def _check(self, layout: TableLayout) -> None:
        if layout.published is not None and self.requested.paper not in papers():
            raise UserError(
                f"'{self.requested.paper}' has no printed numbers (the copy of a paper's folder, too, has none of its "
                f"own): write a file that extends the paper (extends: fedgf), or remove published: {layout.published!r}"
            )
        for column in layout.columns:
            self._check_analysis(quantity(column.metric).file, column.file, layout)
            convergence = self.requested.analyses.get(column.file)
            if column.target is not None and isinstance(convergence, Convergence):
                convergence.check_target(column.target, smoothed=column.smoothed)

    def _tidy_files(self, layout: TableLayout) -> list[Path]:
        return inputs(layout, self.requested.experiment, self.requested.paths, self._quotations(layout))

    def _quotations(self, layout: TableLayout) -> Quotations | None:
        """The entries whose numbers the paper quotes from another paper; None if the table quotes none."""
        requested, quoted = self.requested, layout.quoted
        if quoted is None:
            return None
        theirs = requested.of_paper(quoted.paper).tidy
        return quotations(layout, requested.experiment, requested.paper, quoted, theirs)

    def _is_shown(self, layout: TableLayout) -> bool:
        return bool(layout.methods)
