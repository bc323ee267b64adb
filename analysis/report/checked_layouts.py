"""The tables and figures of an experiment: their layouts, checks that these fit it, and the files that they read."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from analysis.analyses.training.convergence import Convergence
from analysis.figures.base import FigureLayout
from analysis.figures.draw import load_figure
from analysis.layouts.layout import Folder, Layout, are_inherited, layout_file, layout_files, layout_names, subfigures
from analysis.layouts.protocol import at_scale, with_requested_value
from analysis.report.requested import RequestedExperiment
from analysis.tables.layout import Column, TableLayout, load_table
from analysis.tables.quantities import quantity
from analysis.tables.table import inputs
from bench.experiments.results import RUN_FILES
from bench.input.errors import UserError, unknown


@dataclass(frozen=True)
class CheckedLayouts(RequestedExperiment):
    """An experiment with its layouts of tables and figures, which are files in the folder of the experiment's file.

    The experiment's own layouts must fit it. An inherited layout (of an experiment that it extends) is left out if it
    names methods or settings that the experiment does not have.
    """

    def table_names(self) -> list[str]:
        """All tables that fit, sorted."""
        return self._fitting("tables")

    def figure_names(self) -> list[str]:
        """All figures that fit, sorted."""
        return self._fitting("figures")

    def subfigures(self) -> dict[str, list[str]]:
        """Figures that consist of several, such as 4a and 4b, by their number."""
        return subfigures(self.figure_names())

    def tables_shown(self) -> list[str]:
        """The tables that show at least one of the chosen methods."""
        names = self.table_names()
        return names if self.experiment.chosen is None else [n for n in names if self.table_layout(n).methods]

    def figures_shown(self) -> list[str]:
        """The figures that show at least one of the chosen methods."""
        names, experiment = self.figure_names(), self.experiment
        return names if experiment.chosen is None else [n for n in names if self.figure_layout(n).cells(experiment)]

    def table_layout(self, name: str) -> TableLayout:
        """A table's layout; a `UserError` if it does not fit the experiment."""
        layout = load_table(self.source, name).adapted_to(self.experiment)
        with _naming(layout_file(self.source, "tables", name)):
            for column in layout.supported:
                self._check_analysis(quantity(column.metric).file, column.file, layout)
                self._check_target(column)
            layout.cells(self.experiment)
        return layout

    def figure_layout(self, name: str) -> FigureLayout:
        """A figure's layout; a `UserError` if it does not fit the experiment."""
        layout = at_scale(load_figure(self.source, name), self.experiment)
        layout = with_requested_value(layout, self.experiment)
        with _naming(layout_file(self.source, "figures", name)):
            self._check_analysis(layout.needed_file, layout.file, layout)
            layout.cells(self.experiment)
        return layout

    def table_inputs(self, name: str) -> list[Path]:
        """The files that a table is rendered from: its layout files, and tidy files, which need not exist yet."""
        tidy_files = inputs(self.table_layout(name), self.experiment, self.paths)
        return [*layout_files(self.source, "tables", name), *tidy_files]

    def figure_inputs(self, name: str) -> list[Path]:
        """The files that a figure is drawn from: its layout files, and tidy files, which need not exist yet."""
        tidy_files = self.figure_layout(name).inputs(self.experiment, self.paths)
        return [*layout_files(self.source, "figures", name), *tidy_files]

    def left_out(self) -> list[str]:
        """A line for each inherited table and figure that does not fit this experiment, with the reason."""
        return [
            f"{self.experiment.name}: {folder.removesuffix('s')} {name} of the extended experiment is left out ({why})"
            for folder, unfit in self._unfit.items()
            for name, why in unfit.items()
        ]

    def _fitting(self, folder: Folder) -> list[str]:
        return [name for name in layout_names(self.source, folder) if name not in self._unfit[folder]]

    @cached_property
    def _unfit(self) -> dict[Folder, dict[str, str]]:
        """Inherited layouts that do not fit, with the reason."""
        loads: dict[Folder, Callable[[str], Layout]] = {"tables": self.table_layout, "figures": self.figure_layout}
        unfit: dict[Folder, dict[str, str]] = {folder: {} for folder in loads}
        for folder, load in loads.items():
            for name in layout_names(self.source, folder) if are_inherited(self.source, folder) else []:
                try:
                    load(name)
                except UserError as error:
                    unfit[folder][name] = str(error)
        return unfit

    def _check_analysis(self, kind: str, name: str, layout: Layout) -> None:
        """Check that the experiment has the analysis `name` of this kind, for all cells of the layout.

        A `UserError` if there is no such analysis, if runs do not save what it needs, or if the experiment lacks a cell
        with which it compares.
        """
        if kind in RUN_FILES and name == kind:
            return
        of_kind = [other for other, analysis in self.analyses.items() if analysis.name == kind]
        if name not in of_kind:
            raise unknown(f"analysis of kind {kind}", name, of_kind)
        for part in dict.fromkeys(setting.dataset for setting in layout.settings(self.experiment)):
            self.analyses[name].check(self.experiment.resolved_parts[part].evaluation)
        for label, cell in itertools.product(self.analyses[name].compared_labels(), layout.cells(self.experiment)):
            self.experiment.compared_cell(cell, label)

    def _check_target(self, column: Column) -> None:
        """A `UserError` if a column shows a target that the experiment's analyses do not have."""
        convergence = self.analyses.get(column.file)
        if column.target is not None and isinstance(convergence, Convergence):
            convergence.check_target(column.target, smoothed=column.smoothed)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Start the message of an error with the layout's file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"'{file}': {error}") from None
