"""Functions for the Snakefile: experiments, cells, files, and the options of jobs."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from fedflat.analysis.analyses.stored import is_current, wanted_files
from fedflat.analysis.comparison.baselines import folder_of
from fedflat.analysis.planning import targets
from fedflat.analysis.planning.compared_method import COMPARED_KEYS, ComparedMethod, is_untuned
from fedflat.analysis.planning.data_checks import PARTS, Part, identified, missing, parts, unfit
from fedflat.analysis.planning.demands import SHORT_SECONDS, TINY_SECONDS, Demand, of_analysis, of_training
from fedflat.analysis.planning.gradient_times import GradientTimes
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.experiments.experiment import Cell, Experiment, unused_where
from fedflat.bench.experiments.files import PAPER_TABLES, experiment_names
from fedflat.bench.experiments.installed import RUNS
from fedflat.bench.experiments.overrides import CONFIG_KEYS, config_overrides
from fedflat.bench.experiments.resolving import scaled_name
from fedflat.bench.experiments.results import CHECKSUMS, ReportPaths, ResultPaths
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.host.torch_device import resolved_name
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError, raise_all, unknown
from fedflat.bench.training import lists
from fedflat.bench.training.current import Replace, current_run
from fedflat.bench.tuning.cell_search import CellSearch
from fedflat.bench.tuning.given import check_names
from fedflat.bench.tuning.halving import budget
from fedflat.bench.tuning.winners import SUFFIX

KEYS = sorted([*CONFIG_KEYS, *COMPARED_KEYS, "device", "experiments", "log", "replace", "results", "threads"])
"""The keys of config/config.yaml and of `snakemake --config`."""

P = ParamSpec("P")
T = TypeVar("T")
Wildcards = Any
"""Snakemake's wildcards: `experiment`, `dataset`, `partition`, `participation`, `method`, `analysis`, `name`."""


def one_line_errors(function: Callable[P, T]) -> Callable[P, T]:
    """End Snakemake with one line on stderr where `function` raises a `UserError`, instead of with a traceback."""

    @wraps(function)
    def answer(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except UserError as error:
            # While Snakemake adds the jobs that follow a checkpoint, it would not print the reason of an exit.
            print(f"fedflat: {error}", file=sys.stderr)
            sys.exit(2)

    return answer


def _check_braces(key: str, paths: Iterable[str]) -> None:
    """A `UserError` if Snakemake would take a part of a path for a wildcard."""
    for path in paths:
        if "{" in path or "}" in path:
            raise UserError(
                f"--config {key}={path}: in a path, Snakemake takes braces for a wildcard (allowed: paths without {{ "
                "and }; commands of fedflat take any path)"
            )


@dataclass(frozen=True)
class Workflow:
    """The experiments of one call of Snakemake: those that its configuration requests, and all that have a name.

    `experiments` are listed by their names; an experiment is read when one of its targets is requested. Methods
    with an argument `w` are functions of a rule's wildcards. `tuned`: by the name of an experiment, that with its tuned
    values, whose file a job writes. `submits`: jobs are submitted to a cluster.
    """

    paths: ResultPaths
    device: str
    cores: int
    threads_requested: int | None
    replaces: bool
    overrides: Mapping[str, Any]
    requested: tuple[RequestedExperiment, ...]
    experiments: Mapping[str, RequestedExperiment]
    tuned: Mapping[str, RequestedExperiment]
    compared: ComparedMethod | None = None
    submits: bool = False
    log: str | None = None

    @classmethod
    def of(
        cls, config: Mapping[str, Any], cores: int | None = None, *, submits: bool = False, checks: bool = True
    ) -> "Workflow":
        """The workflow for Snakemake's configuration and the number of cores of a job with a large model.

        A `UserError` names a wrong key or value. Without `checks`, the requested grids are not expanded.
        """
        for key in config:
            if key not in KEYS:
                raise unknown("--config key", key, KEYS)
        config = {key: value for key, value in config.items() if value is not None}
        untuned = is_untuned(config)
        overrides = config_overrides({key: value for key, value in config.items() if key != "trials" or not untuned})
        results, replace = config.get("results", "results"), str(config.get("replace", False)).lower()
        if not isinstance(results, str) or not results:
            raise UserError(f"--config results={results} (allowed: the path of a folder)")
        _check_braces("results", [results])
        if (Path(results) / CHECKSUMS).is_file():
            raise UserError(
                f"--config results={results}: the results of this archive are in '{Path(results) / ResultPaths().root}'"
            )
        if replace not in ("true", "false"):
            raise UserError(f"--config replace={replace} (allowed: true, false)")
        threads = config.get("threads")
        if threads is not None and (type(threads) is not int or threads < 1):
            raise UserError(f"--config threads={threads} (allowed: a whole number of at least 1)")
        device = resolved_name(str(config.get("device", "cpu")))
        experiments = config.get("experiments", ["quick"])
        experiments = [experiments] if isinstance(experiments, str) else experiments
        if not isinstance(experiments, list) or not experiments or not all(isinstance(e, str) for e in experiments):
            raise UserError(f"--config experiments={experiments} (allowed: a list such as [quick,my/experiments.yaml])")
        _check_braces("experiments", experiments)
        _check_braces("method", [str(config.get("method", ""))])
        requested: dict[str, RequestedExperiment] = {}
        for name_or_file in experiments:
            experiment = RequestedExperiment(name_or_file, Path(results), overrides)
            if checks:
                experiment.experiment.cells()  # mistakes are reported before any job starts
                mistakes = [mistake for kind in (Tables, Figures) for mistake in kind(experiment).mistakes()]
                raise_all(f"layouts of experiment {experiment.experiment.name}", mistakes)
            if experiment.experiment.name in requested:
                raise UserError(f"--config experiments: two experiments are named {experiment.experiment.name}")
            requested[experiment.experiment.name] = experiment
        scale = overrides.get("scale")
        named = {
            scaled_name(name, scale): RequestedExperiment(name, Path(results), overrides) for name in experiment_names()
        }
        compared = ComparedMethod.of(config, Path(results), overrides)
        known = named | requested | ({} if compared is None else {compared.name: compared.experiment})
        paths = ResultPaths(Path(results))
        tuned = {
            name: RequestedExperiment(str(paths.tuned(name)), Path(results), overrides, stored=True) for name in known
        }
        tuned_names = {scaled_name(f"{name}{SUFFIX}", scale): one for name, one in tuned.items()}
        return cls(
            paths, device, cores or 1, threads, replace == "true", overrides,
            tuple(requested.values()), tuned_names | known, tuned, compared, submits, config.get("log"),
        )  # fmt: skip

    # All jobs

    @property
    def options(self) -> list[str]:
        """Options of every `fedflat` command: the folder of results, and values that override the experiment's."""
        return ["--results", str(self.paths.root), *(f"--set={key}={value}" for key, value in self.overrides.items())]

    @property
    def replace(self) -> list[str]:
        """The option that computes runs and analyses of other code again."""
        return ["--replace"] if self.replaces else []

    @property
    def logging(self) -> list[str]:
        """The option that logs the rounds of training."""
        return [] if self.log is None else ["--log", str(self.log)]

    @property
    def gpus(self) -> int:
        """How many GPUs a job of training or analysis takes."""
        return int(self.device != "cpu")

    @property
    @one_line_errors
    def analysis_names(self) -> list[str]:
        """The names of the analyses of all experiments."""
        return list(dict.fromkeys(name for one in self._written for name in one.analysis_names))

    @property
    def _written(self) -> list[RequestedExperiment]:
        """All experiments, without those of tuned values, whose files jobs write."""
        unwritten = {id(one) for one in self.tuned.values()}
        return [one for one in self.experiments.values() if id(one) not in unwritten]

    # One cell

    def name_or_file(self, w: Wildcards) -> str:
        """An experiment's name or YAML file."""
        return self.experiments[w.experiment].name_or_file

    @staticmethod
    def cell_path(w: Wildcards) -> str:
        """A cell's path, such as digits/dirichlet-0.1/4-of-20/fedsam."""
        return f"{w.dataset}/{w.partition}/{w.participation}/{w.method}"

    def cell(self, w: Wildcards) -> Cell:
        """One cell of an experiment."""
        return self.experiments[w.experiment].experiment.cell(self.cell_path(w))

    @one_line_errors
    def threads(self, w: Wildcards) -> int:
        """CPU threads of a job that trains or analyses a cell; one if it computes on a GPU."""
        if self.threads_requested is not None:
            return self.threads_requested
        run = self.cell(w).runs[0]
        return 1 if self.device != "cpu" else run.model.threads(self.cores)

    @one_line_errors
    def minutes(self, w: Wildcards, attempt: int) -> int:
        """The time that a job of training or analysis requests on a cluster; 0 if jobs are not submitted."""
        return self._demand(w).minutes(attempt) if self.submits else 0

    @one_line_errors
    def mebibytes(self, w: Wildcards, attempt: int) -> int:
        """The memory that a job of training or analysis requests on a cluster; 0 if jobs are not submitted."""
        return self._demand(w).mebibytes(attempt) if self.submits else 0

    @one_line_errors
    def group(self, w: Wildcards) -> str | None:
        """The jobs with which a job of training or analysis is submitted as one; None if it is submitted alone.

        In a submitted job, all its jobs are in one group, and no time is estimated.
        """
        training = self._training(w).seconds if self.submits else 0
        if training > SHORT_SECONDS:
            return None
        if hasattr(w, "analysis") and self.experiments[w.experiment].compared(self.cell_path(w), w.analysis):
            return "comparisons"  # which would connect the cells of a setting
        return "short" if training > TINY_SECONDS else "tiny"

    def _demand(self, w: Wildcards) -> Demand:
        if not hasattr(w, "analysis"):
            return self._training(w)
        analysis, runs = self.experiments[w.experiment].analyses[w.analysis], self.cell(w).runs
        return of_analysis(runs, analysis, self._times, self.threads(w), gpu=self.gpus > 0)

    def _training(self, w: Wildcards) -> Demand:
        return of_training(self.cell(w).runs, self._times, self.threads(w), gpu=self.gpus > 0)

    @cached_property
    def _times(self) -> GradientTimes:
        """The stored times of gradients; others are measured, in a second each."""
        return replace(GradientTimes.read(PAPER_TABLES / "costs.csv"), device=torch.device("cpu"))

    @one_line_errors
    def identity(self, w: Wildcards) -> str:
        """The identity of a cell's configuration."""
        return self.cell(w).identity

    @one_line_errors
    def checked_search(self, w: Wildcards) -> str:
        """What a cell's search depends on; an error, before any job starts, if stored trials are of another search."""
        experiment, path = self.experiments[w.experiment].experiment, self.cell_path(w)
        folder = self.paths.tuning(w.experiment, path)
        if folder.exists() and not self.replaces:
            CellSearch.of(experiment, path, folder).read()
        return _searched(experiment, path)

    @one_line_errors
    def searches(self, w: Wildcards) -> str:
        """What all searches of an experiment depend on.

        With this parameter, tuned values of another search are outdated even while the new trials are missing, as after
        a new search that was killed.
        """
        experiment = self.experiments[w.experiment].experiment
        return short_hash(" ".join(_searched(experiment, path) for path in experiment.paths()))

    @one_line_errors
    def trials(self, w: Wildcards) -> list[Path]:
        """The trials of all cells of an experiment."""
        requested = self.experiments[w.experiment]
        check_names(requested.experiment)
        return targets.TunedFile(requested).inputs()

    def strict(self, w: Wildcards) -> list[str]:
        """The option of `fedflat tune` that ends a comparison without tuned values before its training."""
        return ["--strict"] * (self.compared is not None and w.experiment == self.compared.name)

    @one_line_errors
    def minutes_of_tuning(self, w: Wildcards, attempt: int) -> int:
        """The time that a job of tuning requests on a cluster; 0 if jobs are not submitted."""
        if not self.submits:
            return 0
        tuning, run = self.experiments[w.experiment].experiment.tuning, self.cell(w).runs[0]
        demand = of_training([run], self._times, self.threads(w), gpu=self.gpus > 0)
        runs = budget(tuning.rungs, tuning.trials, run.training.rounds)
        return replace(demand, seconds=runs * demand.seconds).minutes(attempt)

    @one_line_errors
    def outdated_lists(self, w: Wildcards) -> list[Path]:
        """The list that a job writes, if it is missing or outdated; an error if a run contradicts.

        Snakemake compares no runs, and no files of the store: these lists are named to it as forced. It would take a
        missing list, of a job that was killed, for one that is not needed, as long as older tables are there.
        """
        cell, paths = self.cell(w), self.paths
        if not hasattr(w, "analysis"):
            file = paths.runs(w.experiment, cell.path)
            current = lists.is_current(paths, w.experiment, cell, replace=self.replaces)
        else:
            requested, file = self.experiments[w.experiment], paths.analysis(w.experiment, cell.path, w.analysis)
            analysis = requested.analyses[w.analysis]
            current = is_current(paths, file, wanted_files(paths, requested.experiment, analysis, cell.address))
        return [] if current else [file]

    @one_line_errors
    def require_data(self, jobs: Iterable[tuple[str, Wildcards]]) -> None:
        """End Snakemake with instructions if data sets or weights are missing that these jobs need, or do not fit.

        Each mistake is printed once, however many jobs it would end. `jobs`: the name of the rule, and its wildcards.
        Training does not need the data if the store has the runs.
        """
        wanted: dict[Part, RunConfig] = {}
        for rule, w in jobs:
            if rule in PARTS:
                runs = self.cell(w).runs
                needed = {part: run for run in runs for part in parts(rule, run)}
                if not needed.keys() <= wanted.keys() and not (rule == "train" and self._has_runs(runs)):
                    wanted |= needed
        sources = {(run.dataset.label, identified(run.dataset)): run.dataset for run in wanted.values()}
        raise_all("data sets and weights", [*filter(None, (missing(source) for _, source in sorted(sources.items())))])
        raise_all("what does not fit the data sets", list(unfit(wanted)))

    @one_line_errors
    def require_stored_runs(self, jobs: Iterable[tuple[str, Wildcards]]) -> None:
        """End Snakemake if a job would train in an unpacked archive, which has the checksums of its files; `jobs`: as
        above."""
        if not self.paths.unpacked:
            return
        methods = dict.fromkeys(w.method for rule, w in jobs if rule == "train")
        if methods:
            raise UserError(
                f"'{self.paths.root}' is an unpacked archive, in which nothing is trained, and has no runs of "
                f"{', '.join(methods)}: choose the methods that it has with --config methods=[...], or train them in "
                "another folder of results"
            )

    def _has_runs(self, runs: Iterable[RunConfig]) -> bool:
        """Whether none of these runs has to be trained."""
        replace: Replace = self.replaces or "damaged"
        return all(current_run(self.paths.run(run), run, replace=replace, inputs=False) for run in runs)

    @one_line_errors
    def runs_compared_with(self, w: Wildcards) -> list[Path]:
        """The lists of the runs with which an analysis compares those of this cell."""
        cells = self.experiments[w.experiment].compared(self.cell_path(w), w.analysis)
        return [self.paths.runs(w.experiment, cell) for cell in cells]

    def analysis(self, w: Wildcards) -> list[str]:
        """Name and options of an analysis, as arguments of `fedflat analyse`."""
        analysis = self.experiments[w.experiment].analyses[w.analysis]
        return [analysis.in_commands, *(f"--set={name}={value}" for name, value in analysis.options().items())]

    # Tables, figures and pages

    def left_out(self) -> list[str]:
        """A line for each table and figure, and values in `where`, that do not fit the requested experiments."""
        layouts = [line for one in self.requested for kind in (Tables, Figures) for line in kind(one).left_out()]
        return [*layouts, *(line for one in self.requested for line in unused_where(one.experiment))]

    def report(self, experiment: str) -> ReportPaths:
        """The files of a report; `experiment` may be a wildcard."""
        return self.paths.report(experiment, self.overrides.get("report"))

    @one_line_errors
    def table_inputs(self, w: Wildcards) -> list[Path]:
        """The layouts and tidy files of a table."""
        return Tables(self.experiments[w.experiment]).inputs(w.name)

    @one_line_errors
    def figure_inputs(self, w: Wildcards) -> list[Path]:
        """The layouts and tidy files of a figure."""
        return Figures(self.experiments[w.experiment]).inputs(w.name)

    @one_line_errors
    def claims_inputs(self, w: Wildcards) -> list[Path]:
        """The files that decide the claims of an experiment's paper."""
        return targets.ClaimsPage(self.experiments[w.experiment]).inputs()

    @one_line_errors
    def study_inputs(self, w: Wildcards) -> list[Path]:
        """The stored baselines, or the metrics and analyses of all runs, that a study of flatness reads."""
        return targets.StudyReport(self.experiments[w.experiment]).inputs()

    def study_command(self, w: Wildcards) -> list[str]:
        """The `fedflat` command of a study, without its output."""
        [command] = targets.StudyReport(self.experiments[w.experiment]).commands()
        return command

    @one_line_errors
    def tuning_report_inputs(self, w: Wildcards) -> list[Path]:
        """What a report on tuning reads; its tuned values must have been written if it reads runs."""
        report = targets.ReportOnTuning(self.experiments[w.experiment])
        runs = targets.TidyFiles(self.tuned[w.experiment], "metrics").outputs() if report.from_runs else []
        return [*report.inputs(), *runs]

    def tuning_report_command(self, w: Wildcards) -> list[str]:
        """The `fedflat` command of a report on tuning, without its output."""
        [command] = targets.ReportOnTuning(self.experiments[w.experiment]).commands()
        return command

    def reports_on_runs(self, w: Wildcards) -> bool:
        """Whether a report on tuning reads runs, and not stored baselines."""
        return targets.ReportOnTuning(self.experiments[w.experiment]).from_runs

    @one_line_errors
    def page_inputs(self, w: Wildcards) -> list[Path]:
        """The files of the tables and figures of a page, and the interactive page that it links."""
        requested = self.experiments[w.experiment]
        contents = targets.Page(requested).contents
        return [*(file for rendered in contents for file in rendered.outputs()), requested.report_paths.explorer]

    @one_line_errors
    def explorer_inputs(self, w: Wildcards) -> list[Path]:
        """The tidy files behind an interactive page."""
        return targets.ExplorerPage(self.experiments[w.experiment]).inputs()

    @one_line_errors
    def identities_shown(self, w: Wildcards, input: Iterable[str]) -> str:  # noqa: A002 - Snakemake's name
        """Which value of a run is reported, and the identities of the cells whose files are the rule's `input`.

        With this parameter, a table or figure of other configurations is outdated even while the new runs are missing,
        as after a new training that was killed.
        """
        report = self.experiments[w.experiment].experiment.report
        found = dict.fromkeys(self.paths.cell_of(Path(file)) for file in input)
        cells = [self.experiments[name].experiment.cell(cell.path) for name, cell in filter(None, found)]
        return " ".join([*filter(None, [report]), *(cell.identity for cell in cells)])

    @one_line_errors
    def description(self, w: Wildcards) -> str:
        """The description of an experiment."""
        return self.experiments[w.experiment].experiment.description

    # Targets

    @property
    def pages(self) -> list[Path]:
        """The pages of the requested experiments."""
        return [one.report_paths.page for one in self.requested]

    @cached_property
    @one_line_errors
    def targets(self) -> dict[str, Callable[[Wildcards], list[Path]]]:
        """A function for each target, by name, that lists the target's files; its argument (wildcards) is not used."""

        def files(parts: list[targets.Target]) -> Callable[[Wildcards], list[Path]]:
            return one_line_errors(lambda w: [file for part in parts for file in part.outputs()])

        named = {name: files(parts) for name, parts in targets.all_targets(self._written).items()}
        return named | {"compare": one_line_errors(self._comparison)}

    def _comparison(self, w: Wildcards) -> list[Path]:
        if self.compared is None:
            raise UserError("the target compare needs --config method=mine.py grid=bench1d")
        return [self.compared.report.comparison / "report.md"]

    @one_line_errors
    def comparison_inputs(self, w: Wildcards) -> list[Path]:
        """The metrics of all runs of the compared method and of its variants, and the method's analyses.

        The tuned values must have been written.
        """
        assert self.compared is not None  # a job of a comparison has its name from there
        judged, label = self.compared.judged, self.compared.label
        analysed = [file for kind in self.compared.analyses for file in targets.TidyFiles(judged, kind).outputs()]
        own = [file for file in analysed if file.parent.name == label]
        return [*targets.TidyFiles(judged, "metrics").outputs(), *own]

    def identities_compared(self, w: Wildcards, input: Iterable[str]) -> str:  # noqa: A002 - Snakemake's name
        """The identities of the cells of a comparison; none before the tuned values are written."""
        return self.identities_shown(w, input) if Path(self.name_or_file(w)).is_file() else ""

    def stored_runs(self, w: Wildcards) -> Path:
        """The file of the stored runs with which a method is compared."""
        assert self.compared is not None
        return folder_of(self.compared.grid) / RUNS

    @one_line_errors
    def unknown_target(self, w: Wildcards) -> list[Path]:
        """End Snakemake with a line that suggests the nearest target."""
        raise targets.unknown_target(w.target, {*self.targets, "all"})


def _searched(experiment: Experiment, path: str) -> str:
    cell = experiment.cell(path)
    ranges = [experiment.search, experiment.methods[cell.address.method].search]
    return short_hash(f"{cell.identity} {experiment.tuning!r} {experiment.report} {ranges!r}")
