"""What targets of Snakemake would take, before anything starts: runs, hours of one core and disk space.

Hours are those of training and evaluation, from the times of gradients (`analysis.planning.run_cost`), without the
analyses.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

from analysis.planning.gradient_times import Times
from analysis.planning.run_cost import disk, seconds
from analysis.report.report import Report
from bench.experiments.files import experiment_names
from bench.experiments.results import PARTITION
from bench.files.text_table import aligned
from bench.input.errors import UserError, unknown
from bench.training.run_directory import is_complete

ALL = ("all_tables", "all_figures")
"""The targets that are not of one experiment."""


@dataclass(frozen=True)
class Estimate:
    """Of some runs: how many there are, how many of them are finished, and hours and bytes of the others."""

    runs: int = 0
    finished: int = 0
    hours: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(
            self.runs + other.runs,
            self.finished + other.finished,
            self.hours + other.hours,
            self.bytes + other.bytes,
        )


def total(estimates: Iterable[Estimate]) -> Estimate:
    """Their sum."""
    return reduce(add, estimates, Estimate())


@dataclass(frozen=True)
class Plan:
    """The cells of an experiment, each estimated when it is first asked for. `anew`: as if no run were finished."""

    report: Report
    times: Times
    anew: bool = False
    _known: dict[str, Estimate] = field(default_factory=dict, init=False)

    def cells(self, files: Iterable[Path]) -> dict[str, Estimate]:
        """By path, those whose runs tidy files need: their own, and others that analyses compare these with."""
        paths: dict[str, None] = {}
        for file in files:
            cell = self.report.paths.cell_of(file)
            if cell is None or file.name == PARTITION:  # a split needs no run
                continue
            paths[cell.path] = None
            if file.stem in self.report.analyses:
                paths |= dict.fromkeys(self.report.compared(cell.path, file.stem))
        return {path: self._cell(path) for path in paths}

    def _cell(self, path: str) -> Estimate:
        if path not in self._known:
            runs = self.report.experiment.cell(path).runs
            places = [self.report.paths.run(self.report.experiment.name, path, run.seed) for run in runs]
            finished = 0 if self.anew else sum(map(is_complete, places))
            left = len(runs) - finished
            # The runs of a cell differ in their seeds alone. Nothing is timed for one that is finished.
            each = (seconds(runs[0], self.times) / 3600, disk(runs[0])) if left else (0.0, 0.0)
            self._known[path] = Estimate(len(runs), finished, *(left * part for part in each))
        return self._known[path]


def plan(
    targets: Sequence[str], results: Path, changes: dict[str, Any], times: Times, sources: Sequence[str] = ()
) -> dict[str, Estimate]:
    """One estimate per part of each experiment that targets such as fedgf_table_1, fedgf or all_tables need.

    What several targets need is counted once. `sources`: names or files of further experiments that they may be of. A
    `UserError` suggests the nearest target.
    """
    reports = _reports(results, changes, sources)
    plans = {name: Plan(report, times) for name, report in reports.items()}
    needed: dict[str, dict[str, Estimate]] = {}
    for target in targets:
        for name, files in _needed(target, reports):
            needed[name] = needed.get(name, {}) | plans[name].cells(files)
    parts: dict[str, Estimate] = {}
    for name, cells in needed.items():
        for path, estimate in cells.items():
            part = f"{reports[name].experiment.name}: {path.split('/')[0]}"
            parts[part] = parts.get(part, Estimate()) + estimate
    return parts


def _reports(results: Path, changes: dict[str, Any], sources: Sequence[str]) -> dict[str, Report]:
    """By what their targets begin with, the named experiments and those of the sources, which go before them."""
    own: dict[str, Report] = {}
    for source in dict.fromkeys(sources):
        report = Report(source, results, changes)
        if report.target in own:
            raise UserError(f"--experiment: two of them are named {report.target}")
        own[report.target] = report
    return {name: Report(name, results, changes) for name in experiment_names()} | own


def _needed(target: str, reports: Mapping[str, Report]) -> Iterator[tuple[str, list[Path]]]:
    """The names of a target's experiments, with the files that it is made from."""
    if target in ALL:
        for name, report in reports.items():
            if report.is_paper:
                yield name, _files(report, tables=target == "all_tables", figures=target == "all_figures")
        return
    beginnings = [name for name in reports if target == name or target.startswith(f"{name}_")]
    if not beginnings:
        raise unknown("target", target, [*ALL, *(known for report in reports.values() for known in _targets(report))])
    name = max(beginnings, key=len)
    known = _targets(reports[name])
    if target not in known:
        raise unknown("target", target, known)
    yield name, known[target]()


def _targets(report: Report) -> dict[str, Callable[[], list[Path]]]:
    """Those of an experiment, as the Snakefile has them, each with the files that it is made from."""
    name, experiment, paths = report.target, report.experiment, report.paths

    def runs() -> list[Path]:
        return [paths.metrics(experiment.name, cell) for cell in experiment.paths()]

    def analysed(analysis: str) -> list[Path]:
        return [paths.analysis(experiment.name, cell, analysis) for cell in report.analysed(analysis)]

    def drawn(figures: Sequence[str]) -> list[Path]:
        return [file for figure in figures for file in report.figure_inputs(figure)]

    figures = {figure: [figure] for figure in report.figure_names()} | report.subfigures()
    return {
        name: partial(_files, report, tables=True, figures=True),
        f"{name}_runs": runs,
        **{f"{name}_analysis_{analysis}": partial(analysed, analysis) for analysis in report.analysis_names},
        **{f"{name}_table_{table}": partial(report.table_inputs, table) for table in report.table_names()},
        **{f"{name}_figure_{figure}": partial(drawn, parts) for figure, parts in figures.items()},
    }


def _files(report: Report, *, tables: bool, figures: bool) -> list[Path]:
    files = [file for name in report.table_names() for file in report.table_inputs(name)] if tables else []
    return files + ([file for name in report.figure_names() for file in report.figure_inputs(name)] if figures else [])


def in_words(parts: Mapping[str, Estimate]) -> str:
    """One line per part, and their sum."""
    if not parts:
        return "nothing to train"
    rows = {**parts, "all": total(parts.values())} if len(parts) != 1 else parts
    header = ("part", "runs", "finished", "hours of one core", "GiB")
    numbers = [
        (part, f"{one.runs:,}", f"{one.finished:,}", rounded(one.hours), rounded(one.bytes / 2**30))
        for part, one in rows.items()
    ]
    return "\n".join(aligned([header, *numbers], right=range(1, len(header))))


def rounded(number: float) -> str:
    """Two significant digits, such as 48,000 or 0.083; of what is there, nothing below 0.01."""
    if number == 0:
        return "0"
    return f"{float(f'{number:.2g}'):,.10g}" if number >= 0.01 else "< 0.01"
