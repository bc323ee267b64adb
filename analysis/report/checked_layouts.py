"""An experiment's layouts of tables or of figures: checks that they fit it, and the files that they read."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Generic, NamedTuple, TypeVar

from fedflat.analysis.layouts.layout import (
    DEFAULTS,
    Folder,
    Layout,
    are_default,
    are_inherited,
    layout_file,
    layout_files,
    layout_names,
    shows_sweeps,
    unknown_layout,
)
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.results import RUN_FILES
from fedflat.bench.input.errors import UserError, all_mistakes, located, unknown

AnyLayout = TypeVar("AnyLayout", bound=Layout)


class LayoutFile(NamedTuple):
    """A layout's file, by experiment and name; `part`: the label of the only part that it shows, or None."""

    experiment: str
    name: str
    part: str | None = None


@dataclass(frozen=True)
class CheckedLayouts(ABC, Generic[AnyLayout]):
    """The layouts of an experiment's tables or figures, which are files in the folder of the experiment's file.

    The experiment's own layouts must fit it. An inherited layout (of an experiment that it extends), or a default one,
    is left out if it does not fit: it names settings that the experiment lacks, or shows what runs do not store. If no
    inherited one shows its grid, the experiment has the default ones. A default layout of one setting exists once for
    each part whose data it can show.
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
    def _adapted(self, source: LayoutFile) -> AnyLayout:
        """A layout as its file gives it, adapted to the experiment."""

    @abstractmethod
    def _shows_one_setting(self, source: LayoutFile) -> bool:
        """Whether it shows the experiment's main setting alone."""

    @abstractmethod
    def _suits(self, source: LayoutFile, part: str) -> bool:
        """Whether a layout of one setting can show the data of a part, given by its label."""

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
        possible, unfit = self._sources
        return [name for name in possible if name not in unfit]

    def shown(self) -> list[str]:
        """The layouts that show something of the chosen methods."""
        return [name for name in self.names() if self._is_shown(self.layout(name))]

    def layout(self, name: str) -> AnyLayout:
        """A layout, adapted to the experiment; a `UserError` if it does not fit."""
        return self._fitting(self._source(name))

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
        source = self._source(name)
        return [
            *layout_files(source.experiment, self.folder, source.name),
            *self._tidy_files(self._fitting(source)),
        ]

    def mistakes(self) -> list[UserError]:
        """The errors in the experiment's own layouts; none if its analyses have an error, which is reported instead."""
        found = list[UserError]()
        try:
            self.requested.analyses  # noqa: B018 - read once
        except UserError:
            return found
        source = self.requested.name_or_file
        for own in [] if are_inherited(source, self.folder) else self._possible(source).values():
            try:
                self._fitting(own)
            except UserError as error:
                found.append(error)
        return found

    def left_out(self) -> list[str]:
        """A line for each inherited or default layout that does not fit this experiment, with the reason.

        If no inherited one shows the experiment's grid, a single line says so.
        """
        experiment, (possible, unfit) = self.requested.experiment.name, self._sources
        lines = [
            f"{experiment}: {self.kind} {name} is left out, because it does not fit ({why})"
            for name, why in unfit.items()
        ]
        inherited = self._possible(self.requested.name_or_file)
        if possible != inherited:
            why = "; ".join(f"{name}: {why}" for name, why in [*self._unfit(inherited).items()][:1])
            lines.insert(0, f"{experiment}: no inherited {self.kind} shows its grid, so it has those of quick ({why})")
        return lines

    def _source(self, name: str) -> LayoutFile:
        """The source of a layout; for an unknown name, a `UserError` that suggests the nearest one.

        A name that is not among all layouts may be that of one which does not fit.
        """
        (possible, _), own = self._sources, self.requested.name_or_file
        of_parts = any(source.name == name for source in possible.values())
        if name not in possible and (of_parts or name not in layout_names(own, self.folder)):
            raise unknown_layout(own, self.folder, name, possible)
        return possible.get(name, LayoutFile(own, name))

    @cached_property
    def _sources(self) -> tuple[dict[str, LayoutFile], dict[str, str]]:
        """All layouts by name; and why those of them do not fit that are inherited, or default ones."""
        own = self.requested.name_or_file
        possible = self._possible(own)
        if not are_inherited(own, self.folder):
            return possible, {}
        unfit = self._unfit(possible)
        fitting = (self._fitting(source) for name, source in possible.items() if name not in unfit)
        if not are_default(own, self.folder) and not any(
            layout.settings(self.requested.experiment) for layout in fitting
        ):
            possible = self._possible(DEFAULTS.name)
            unfit = self._unfit(possible)
        return possible, unfit

    def _possible(self, experiment_name: str) -> dict[str, LayoutFile]:
        """The layouts of a named experiment, by name; without those of sweeps if the requested experiment has none.

        A default layout of one setting is there once for each part whose data it can show, with the part's label in its
        name if there are several parts.
        """
        found: dict[str, LayoutFile] = {}
        parts = list(self.requested.experiment.resolved_parts)
        default = are_default(experiment_name, self.folder)
        for name in layout_names(experiment_name, self.folder):
            source = LayoutFile(experiment_name, name)
            if shows_sweeps(experiment_name, self.folder, name) and not self.requested.experiment.swept:
                continue
            if not (default and self._shows_one_setting(source)):
                found[name] = source
                continue
            for part in parts:
                if self._suits(source, part):
                    several = len(parts) > 1
                    found[f"{name}_{part}" if several else name] = source._replace(part=part if several else None)
        return found

    def _unfit(self, possible: Mapping[str, LayoutFile]) -> dict[str, str]:
        """The layouts that do not fit, with the reason."""
        unfit = {}
        for name, source in possible.items():
            try:
                self._fitting(source)
            except UserError as error:
                unfit[name] = "; ".join(all_mistakes([error]))
        return unfit

    def _fitting(self, source: LayoutFile) -> AnyLayout:
        """A layout, adapted to the experiment; a `UserError` if it does not fit."""
        layout = self._adapted(source)
        try:
            self._check(layout)
            layout.cells(self.requested.experiment)
        except UserError as error:
            raise located(f"'{layout_file(source.experiment, self.folder, source.name)}'", error) from None
        return layout

    def _check_analysis(self, kind: str, name: str, layout: Layout) -> None:
        """Check that the experiment has the analysis `name` of this kind, for all cells of the layout.

        A `UserError` if there is no such analysis, if it cannot analyse the data, if runs do not save what it needs, or
        if the experiment lacks a cell with which it compares.
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
            analyses[name].check_data(experiment.data_in(setting))
            analyses[name].check(experiment.evaluation_in(setting))
        for label, cell in itertools.product(analyses[name].compared_labels(), layout.cells(experiment)):
            experiment.compared_cell(cell, label)
