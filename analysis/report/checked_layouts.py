"""An experiment's layouts of tables or of figures: checks that they fit it, and the files that they read."""

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from analysis.layouts.layout import (
    Folder,
    Layout,
    are_inherited,
    layout_file,
    layout_files,
    layout_names,
    shows_sweeps,
)
from analysis.report.requested import RequestedExperiment
from bench.experiments.results import RUN_FILES
from bench.input.errors import UserError, all_mistakes, located, unknown

AnyLayout = TypeVar("AnyLayout", bound=Layout)


@dataclass(frozen=True)
class CheckedLayouts(ABC, Generic[AnyLayout]):
    """The layouts of an experiment's tables or figures, which are files in the folder of the experiment's file.

    The experiment's own layouts must fit it. An inherited layout (of an experiment that it extends), or a default one,
    is left out if it does not fit: it names settings that the experiment lacks, or shows what runs do not store.
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
        return [name for name in self._possible if name not in self._unfit]

    def shown(self) -> list[str]:
        """The layouts that show something of the chosen methods."""
        return [name for name in self.names() if self._is_shown(self.layout(name))]

    def layout(self, name: str) -> AnyLayout:
        """A layout, adapted to the experiment; a `UserError` if it does not fit."""
        layout = self._adapted(name)
        try:
            self._check(layout)
            layout.cells(self.requested.experiment)
        except UserError as error:
            raise located(f"'{layout_file(self.requested.name_or_file, self.folder, name)}'", error) from None
        return layout

    def rendered_layout(self, name: str) -> AnyLayout:
        """A layout that is rendered now; a `UserError` if it shows none of the chosen methods."""
        layout = self.layout(name)
        if not self._is_shown(layout):
            experiment = self.requested.experiment
            methods = self.requested.chosen_methods or ", ".join(experiment.methods)
            raise UserError(f"{self.kind} {name} of {experiment.name} shows nothing of the methods {methods}")
        return layout

    def inputs(self, name: str) -> list[Path]:
        """The files that it is rendered from: its layout files, and tidy files, which need not exist yet."""
        return [*layout_files(self.requested.name_or_file, self.folder, name), *self._tidy_files(self.layout(name))]

    def mistakes(self) -> list[UserError]:
        """The errors in the experiment's own layouts; none if its analyses have an error, which is reported instead."""
        found = list[UserError]()
        try:
            self.requested.analyses  # noqa: B018 - read once
        except UserError:
            return found
        for name in [] if are_inherited(self.requested.name_or_file, self.folder) else self._possible:
            try:
                self.layout(name)
            except UserError as error:
                found.append(error)
        return found

    def left_out(self) -> list[str]:
        """A line for each inherited or default layout that does not fit this experiment, with the reason."""
        return [
            f"{self.requested.experiment.name}: {self.kind} {name} is left out, because it does not fit ({why})"
            for name, why in self._unfit.items()
        ]

    @cached_property
    def _possible(self) -> list[str]:
        """All layouts, without those of sweeps if the experiment has none."""
        source = self.requested.name_or_file
        names = layout_names(source, self.folder)
        return [n for n in names if not shows_sweeps(source, self.folder, n) or self.requested.experiment.swept]

    @cached_property
    def _unfit(self) -> dict[str, str]:
        """Inherited and default layouts that do not fit, with the reason."""
        source, unfit = self.requested.name_or_file, {}
        for name in self._possible if are_inherited(source, self.folder) else []:
            try:
                self.layout(name)
            except UserError as error:
                unfit[name] = "; ".join(all_mistakes([error]))
        return unfit

    def _check_analysis(self, kind: str, name: str, layout: Layout) -> None:
        """Check that the experiment has the analysis `name` of this kind, for all cells of the layout.

        A `UserError` if there is no such analysis, if runs do not save what it needs, or if the experiment lacks a cell
        with which it compares.
        """
        experiment, analyses = self.requested.experiment, self.requested.analyses
        if kind in RUN_FILES and name == kind:
            for setting in layout.settings(experiment) if kind == "metrics" else ():
                experiment.evaluation_in(setting).require_test(self.kind)
            return
        of_kind = [other for other, analysis in analyses.items() if analysis.name == kind]
        if name not in of_kind:
            raise unknown(f"analysis of kind {kind}", name, of_kind)
        for setting in layout.settings(experiment):
            analyses[name].check(experiment.evaluation_in(setting))
        for label, cell in itertools.product(analyses[name].compared_labels(), layout.cells(experiment)):
            experiment.compared_cell(cell, label)
