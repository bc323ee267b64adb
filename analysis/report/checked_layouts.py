"""An experiment's layouts of tables or of figures: checks that they fit it, and the files that they read."""

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from analysis.layouts.layout import Folder, Layout, are_inherited, layout_file, layout_files, layout_names
from analysis.report.requested import RequestedExperiment
from bench.experiments.results import RUN_FILES
from bench.input.errors import UserError, unknown

AnyLayout = TypeVar("AnyLayout", bound=Layout)


@dataclass(frozen=True)
class CheckedLayouts(ABC, Generic[AnyLayout]):
    """The layouts of an experiment's tables or figures, which are files in the folder of the experiment's file.

    The experiment's own layouts must fit it. An inherited layout (of an experiment that it extends) is left out if it
    names methods or settings that the experiment does not have.
    """

    folder: ClassVar[Folder]
    requested: RequestedExperiment

    @abstractmethod
    def outputs(self, name: str) -> list[Path]:
        """The files that are rendered from a layout. The name may be a wildcard."""

    @abstractmethod
    def render(self, name: str) -> list[Path]:
        """Write these files; return them."""

    @abstractmethod
    def _adapted(self, name: str) -> AnyLayout:
        """A layout as its file gives it, adapted to the experiment."""

    @abstractmethod
    def _check(self, layout: AnyLayout) -> None:
        """A `UserError` if the experiment lacks an analysis that the layout shows."""

    @abstractmethod
    def _tidy_files(self, layout: AnyLayout) -> list[Path]:
        """The tidy files that it reads."""

    @abstractmethod
    def _is_shown(self, layout: AnyLayout) -> bool:
        """Whether it shows at least one of the chosen methods."""

    @property
    def kind(self) -> str:
        """table or figure."""
        return self.folder.removesuffix("s")

    def names(self) -> list[str]:
        """All layouts that fit, sorted."""
        return [name for name in layout_names(self.requested.name_or_file, self.folder) if name not in self._unfit]

    def shown(self) -> list[str]:
        """The layouts that show at least one of the chosen methods."""
        names = self.names()
        if self.requested.experiment.chosen is None:
            return names
        return [name for name in names if self._is_shown(self.layout(name))]

    def layout(self, name: str) -> AnyLayout:
        """A layout, adapted to the experiment; a `UserError` if it does not fit."""
        layout = self._adapted(name)
        try:
            self._check(layout)
            layout.cells(self.requested.experiment)
        except UserError as error:
            raise UserError(f"'{layout_file(self.requested.name_or_file, self.folder, name)}': {error}") from None
        return layout

    def rendered_layout(self, name: str) -> AnyLayout:
        """A layout that is rendered now; a `UserError` if it shows none of the chosen methods."""
        layout = self.layout(name)
        if not self._is_shown(layout):
            experiment, chosen = self.requested.experiment.name, self.requested.chosen_methods
            raise UserError(f"{self.kind} {name} of {experiment} shows none of the methods {chosen}")
        return layout

    def inputs(self, name: str) -> list[Path]:
        """The files that it is rendered from: its layout files, and tidy files, which need not exist yet."""
        return [*layout_files(self.requested.name_or_file, self.folder, name), *self._tidy_files(self.layout(name))]

    def left_out(self) -> list[str]:
        """A line for each inherited layout that does not fit this experiment, with the reason."""
        return [
            f"{self.requested.experiment.name}: {self.kind} {name} of the extended experiment is left out ({why})"
            for name, why in self._unfit.items()
        ]

    @cached_property
    def _unfit(self) -> dict[str, str]:
        """Inherited layouts that do not fit, with the reason."""
        source, unfit = self.requested.name_or_file, {}
        for name in layout_names(source, self.folder) if are_inherited(source, self.folder) else []:
            try:
                self.layout(name)
            except UserError as error:
                unfit[name] = str(error)
        return unfit

    def _check_analysis(self, kind: str, name: str, layout: Layout) -> None:
        """Check that the experiment has the analysis `name` of this kind, for all cells of the layout.

        A `UserError` if there is no such analysis, if runs do not save what it needs, or if the experiment lacks a cell
        with which it compares.
        """
        if kind in RUN_FILES and name == kind:
            return
        experiment, analyses = self.requested.experiment, self.requested.analyses
        of_kind = [other for other, analysis in analyses.items() if analysis.name == kind]
        if name not in of_kind:
            raise unknown(f"analysis of kind {kind}", name, of_kind)
        for setting in layout.settings(experiment):
            analyses[name].check(experiment.evaluation_in(setting))
        for label, cell in itertools.product(analyses[name].compared_labels(), layout.cells(experiment)):
            experiment.compared_cell(cell, label)
