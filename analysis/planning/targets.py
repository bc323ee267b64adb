"""The targets of Snakemake: pages, runs, analyses, tables, figures, and the claims of papers."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedflat.analysis.claims.evidence import Printed, RunEvidence
from fedflat.analysis.claims.page import judged, page
from fedflat.analysis.claims.schema import claims_file, papers_with_claims
from fedflat.analysis.comparison.baselines import folder_of
from fedflat.analysis.comparison.explore import render_explorer
from fedflat.analysis.comparison.study.source import has_stored_measures
from fedflat.analysis.comparison.tuning.source import has_stored_tuning
from fedflat.analysis.comparison.tuning.trials import file_of
from fedflat.analysis.layouts.run_columns import ANALYSED
from fedflat.analysis.report.checked_layouts import CheckedLayouts
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.report import render_page
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.experiments.files import experiment_names, is_named
from fedflat.bench.experiments.installed import RUNS
from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.errors import UserError, unknown


@dataclass(frozen=True)
class Target(ABC):
    """A target of an experiment. Its files are listed on request, because that reads all cells of the experiment."""

    requested: RequestedExperiment

    @abstractmethod
    def outputs(self) -> list[Path]:
        """The files that Snakemake writes."""

    def inputs(self) -> list[Path]:
        """The layouts and tidy files that the target needs."""
        return self.outputs()

    def render(self) -> None:  # noqa: B027 - tidy files are not rendered
        """Write the outputs that are rendered from tidy files."""

    def commands(self) -> list[list[str]]:
        """The `fedflat` commands that do the same, without the options that all of them have."""
        return []


@dataclass(frozen=True)
class TidyFiles(Target):
    """The lists of all cells: `kind` is metrics, or the name of an analysis."""

    kind: str

    def outputs(self) -> list[Path]:
        """One file for each cell; for an analysis, for each cell to which it applies."""
        requested, experiment = self.requested, self.requested.experiment
        cells = experiment.paths() if self.kind == "metrics" else requested.analysed(self.kind)
        return [requested.paths.tidy(experiment.name, cell, self.kind) for cell in cells]


@dataclass(frozen=True)
class Rendered(Target):
    """Tables, or figures; `names` None: all that the page shows."""

    layouts: type[CheckedLayouts[Any]]
    names: tuple[str, ...] | None = None

    def outputs(self) -> list[Path]:
        """The files of each table or figure."""
        layouts = self.layouts(self.requested)
        return [file for name in self._names(layouts) for file in layouts.outputs(name)]

    def inputs(self) -> list[Path]:
        """The layouts, and the tidy files that they show."""
        layouts = self.layouts(self.requested)
        return [file for name in self._names(layouts) for file in layouts.inputs(name)]

    def render(self) -> None:
        """Render each table or figure."""
        layouts = self.layouts(self.requested)
        for name in self._names(layouts):
            layouts.render(name)

    def commands(self) -> list[list[str]]:
        """One for each table or figure."""
        layouts = self.layouts(self.requested)
        return [[layouts.kind, self.requested.name_or_file, name] for name in self._names(layouts)]

    def _names(self, layouts: CheckedLayouts[Any]) -> Iterable[str]:
        return layouts.shown() if self.names is None else self.names


@dataclass(frozen=True)
class Page(Target):
    """The page of an experiment."""

    @property
    def contents(self) -> list[Rendered]:
        """The tables and figures that the page shows."""
        return [Rendered(self.requested, Tables), Rendered(self.requested, Figures)]

    def outputs(self) -> list[Path]:
        """The page alone."""
        return [self.requested.report_paths.page]

    def inputs(self) -> list[Path]:
        """The layouts and tidy files of its tables and figures."""
        return [file for rendered in self.contents for file in rendered.inputs()]

    def render(self) -> None:
        """Render the tables and figures, then the page."""
        for rendered in self.contents:
            rendered.render()
        render_page(self.requested)

    def commands(self) -> list[list[str]]:
        """Those of the tables and figures, and that of the page."""
        contents = [command for rendered in self.contents for command in rendered.commands()]
        return [*contents, ["report", self.requested.name_or_file]]


@dataclass(frozen=True)
class ExplorerPage(Target):
    """The interactive page of an experiment."""

    def outputs(self) -> list[Path]:
        """The page alone."""
        return [self.requested.report_paths.explorer]

    def inputs(self) -> list[Path]:
        """The metrics of all cells, and the files that the tables and figures of the experiment need."""
        return list(dict.fromkeys([*TidyFiles(self.requested, "metrics").outputs(), *Page(self.requested).inputs()]))

    def render(self) -> None:
        """Write the page."""
        render_explorer(self.requested)

    def commands(self) -> list[list[str]]:
        """The command that writes the page."""
        return [["explore", self.requested.name_or_file]]


@dataclass(frozen=True)
class TunedFile(Target):
    """The experiment with tuned values."""

    def outputs(self) -> list[Path]:
        """The file alone."""
        return [self.requested.paths.tuned(self.requested.experiment.name)]

    def inputs(self) -> list[Path]:
        """The trials of each cell."""
        requested, experiment = self.requested, self.requested.experiment
        return [requested.paths.trials(experiment.name, cell) for cell in experiment.paths()]


@dataclass(frozen=True)
class ReportOnStored(Target):
    """A report on data that are stored in the repository, if there are any, else on runs."""

    command: ClassVar[str]

    @staticmethod
    @abstractmethod
    def has_stored(grid: str) -> bool:
        """Whether the data of the report are stored for a grid."""

    @property
    def from_runs(self) -> bool:
        """Whether the runs of the experiment are read, as always if its values are overridden."""
        named = is_named(self.requested.name_or_file)
        return bool(self.requested.overrides) or not (named and self.has_stored(self.requested.name_or_file))

    def commands(self) -> list[list[str]]:
        """The command that writes the report."""
        return [[self.command, self.requested.name_or_file, *(["--runs"] if self.from_runs else [])]]


@dataclass(frozen=True)
class StudyReport(ReportOnStored):
    """The study of flatness: of stored baselines with flatness measures, if there are any, else of the runs."""

    command = "study"
    has_stored = staticmethod(has_stored_measures)

    def outputs(self) -> list[Path]:
        """The page, which is written last."""
        return [self.requested.report_paths.study / "study.md"]

    def inputs(self) -> list[Path]:
        """The file of stored runs; or the tidy files of all cells, with the analyses that measure flatness.

        An analysis for which the runs lack something, such as local models, is left out.
        """
        if not self.from_runs:
            return [folder_of(self.requested.name_or_file) / RUNS]
        files = TidyFiles(self.requested, "metrics").outputs()
        for kind in dict.fromkeys(ANALYSED.values()):
            with suppress(UserError):
                files += TidyFiles(self.requested, kind).outputs()
        return files


@dataclass(frozen=True)
class ReportOnTuning(ReportOnStored):
    """What tuning changes: in stored baselines with tuned runs or trials, if there are any, else in the runs."""

    command = "tuning-report"
    has_stored = staticmethod(has_stored_tuning)

    def outputs(self) -> list[Path]:
        """The page, which is written last."""
        return [self.requested.report_paths.tuning / "tuning.md"]

    def inputs(self) -> list[Path]:
        """The stored files; or the metrics of all cells, their trials, and the file with tuned values.

        The runs with tuned values are not listed: their configurations are known when that file is written.
        """
        if not self.from_runs:
            grid = self.requested.name_or_file
            return [file for file in (folder_of(grid) / RUNS, file_of(grid)) if file.is_file()]
        tuned = TunedFile(self.requested)
        return [*TidyFiles(self.requested, "metrics").outputs(), *tuned.inputs(), *tuned.outputs()]


@dataclass(frozen=True)
class ClaimsPage(Target):
    """The page with the claims of the experiment's paper."""

    def outputs(self) -> list[Path]:
        """The page alone."""
        return [self.requested.report_paths.claims]

    def inputs(self) -> list[Path]:
        """The file of the claims, and the tidy files that decide them."""
        return [claims_file(self.requested.paper), *RunEvidence(self.requested).inputs()]

    def render(self) -> None:
        """Decide the claims, and write the page."""
        runs = RunEvidence(self.requested)
        write_text(self.requested.report_paths.claims, page(judged(Printed(runs.requested.paper), runs), runs))

    def commands(self) -> list[list[str]]:
        """The command that writes the page."""
        return [["claims", self.requested.name_or_file, "--out", str(self.requested.report_paths.claims)]]


def targets_of(requested: RequestedExperiment) -> dict[str, Target]:
    """The targets of one experiment, by name."""
    tables, figures = Tables(requested), Figures(requested)
    figure_parts = {name: [name] for name in figures.names()} | figures.subfigures()
    by_ending: dict[str, Target] = {
        "": Page(requested),
        "_explore": ExplorerPage(requested),
        "_runs": TidyFiles(requested, "metrics"),
        "_tune": TunedFile(requested),
        "_study": StudyReport(requested),
        "_tuning_report": ReportOnTuning(requested),
        **{f"_analysis_{name}": TidyFiles(requested, name) for name in requested.analysis_names},
        **{f"_table_{name}": Rendered(requested, Tables, (name,)) for name in tables.names()},
        **{f"_figure_{name}": Rendered(requested, Figures, tuple(parts)) for name, parts in figure_parts.items()},
    }
    if requested.paper in papers_with_claims():
        by_ending["_claims"] = ClaimsPage(requested)
    name = requested.target
    return {name + ending: target for ending, target in by_ending.items()}


def all_targets(experiments: Iterable[RequestedExperiment]) -> dict[str, list[Target]]:
    """The targets of several experiments, by name; all_tables and all_figures consist of one `Target` per paper."""
    experiments = list(experiments)
    papers = [requested for requested in experiments if requested.is_paper]
    return {
        "all_tables": [Rendered(paper, Tables) for paper in papers],
        "all_figures": [Rendered(paper, Figures) for paper in papers],
        **{name: [target] for requested in experiments for name, target in targets_of(requested).items()},
    }


def experiments_with(results: Path, overrides: Mapping[str, Any], sources: Sequence[str]) -> list[RequestedExperiment]:
    """The named experiments and those of `sources`, which take precedence over a named one with the same targets.

    `sources`: names or YAML files.
    """
    further: dict[str, RequestedExperiment] = {}
    for source in dict.fromkeys(sources):
        requested = RequestedExperiment(source, results, overrides)
        if requested.target in further:
            raise UserError(f"--experiment: two experiments are named {requested.target}")
        further[requested.target] = requested
    named = {name: RequestedExperiment(name, results, overrides) for name in experiment_names()}
    return [*(named | further).values()]


def unknown_target(name: str, known: Collection[str]) -> UserError:
    """The error for an unknown target, which may be the name of a table, a figure or an analysis alone."""
    ends = tuple(f"_{kind}_{name}" for kind in ("table", "figure", "analysis"))
    meant = min((target for target in known if target.endswith(ends)), key=len, default=None)
    return unknown("target", name, known, meant)


def named_in(targets: Sequence[str], sources: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names of targets, and the further experiments: the YAML file of one stands for the target of its name."""
    files = [name for name in targets if name.endswith((".yaml", ".yml"))]
    names = [RequestedExperiment(name, Path()).target if name in files else name for name in targets]
    return names, list(dict.fromkeys([*sources, *files]))


def find_targets(names: Collection[str], experiments: Iterable[RequestedExperiment]) -> list[Target]:
    """What the names of targets stand for; for an unknown one, a `UserError` suggests the nearest name."""
    experiments, found = list(experiments), []
    named = [one for one in experiments if any(f"{name}_".startswith(f"{one.target}_") for name in names)]
    known = {name: [target] for one in named for name, target in targets_of(one).items()}
    if not known.keys() >= {*names}:  # all_tables, all_figures, or an unknown name
        known = all_targets(experiments)
    for name in names:
        if name not in known:
            raise unknown_target(name, known)
        found += known[name]
    return found
