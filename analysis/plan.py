"""What a target of Snakemake would take, before anything starts: runs, hours and disk space.

Hours are those of training and evaluation, from the times of gradients (`analysis.run_cost`). Hours of analyses are
not in them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from analysis.gradient_times import Times
from analysis.report import Report
from analysis.run_cost import disk, seconds
from analysis.tidy import cells_of
from bench.errors import UserError, unknown
from bench.experiments import experiment_names
from bench.records import PARTITION, is_complete


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
        trained = (file for file in files if file.name != PARTITION)  # a split needs no run
        for file in trained:
            for path in cells_of(self.report.results, [file]):
                paths[path] = None
                if file.stem in self.report.analyses:
                    paths |= dict.fromkeys(self.report.compared(path, file.stem))
        return {path: self._cell(path) for path in paths}

    def _cell(self, path: str) -> Estimate:
        if path not in self._known:
            runs = self.report.experiment.cell(path).runs
            folder = self.report.results / "runs" / self.report.experiment.name / path
            finished = 0 if self.anew else sum(is_complete(folder / f"seed-{run.seed}") for run in runs)
            left = len(runs) - finished
            # The runs of a cell differ in their seeds alone. Nothing is timed for one that is finished.
            each = (seconds(runs[0], self.times) / 3600, disk(runs[0])) if left else (0.0, 0.0)
            self._known[path] = Estimate(len(runs), finished, *(left * part for part in each))
        return self._known[path]


def plan(target: str, results: Path, changes: dict[str, Any], times: Times) -> dict[str, Estimate]:
    """One estimate per part of each experiment that a target such as fedgf_table_1, fedgf or all_tables needs.

    A `UserError` suggests the nearest target.
    """
    parts: dict[str, Estimate] = {}
    for report, files in _needed(target, results, changes):
        for path, estimate in Plan(report, times).cells(files).items():
            part = f"{report.experiment.name}: {path.split('/')[0]}"
            parts[part] = parts.get(part, Estimate()) + estimate
    return parts


def _needed(target: str, results: Path, changes: dict[str, Any]) -> Iterator[tuple[Report, list[Path]]]:
    """The experiments of a target, with the files that it is made from."""
    reports = {name: Report(name, results, changes) for name in experiment_names()}
    if target in ("all_tables", "all_figures"):
        for report in reports.values():
            if report.is_paper:
                yield report, _files(report, tables=target == "all_tables", figures=target == "all_figures")
        return
    name = max((n for n in reports if target == n or target.startswith(f"{n}_")), key=len, default=None)
    if name is None:
        raise unknown("target", target, [*reports, "all_tables", "all_figures"])
    report, rest = reports[name], target.removeprefix(name).removeprefix("_")
    kind, _, layout = rest.partition("_")
    experiment = report.experiment
    if not rest:
        yield report, _files(report, tables=True, figures=True)
    elif rest == "runs":
        yield report, [results / "runs" / experiment.name / path / "metrics.csv" for path in experiment.paths()]
    elif kind == "table":
        yield report, report.table_inputs(layout)
    elif kind == "figure":
        parts = report.figures_in_parts().get(layout, [layout])
        yield report, [file for part in parts for file in report.figure_inputs(part)]
    elif kind == "analysis":
        cells = report.analysed(layout)
        yield report, [results / "analysis" / experiment.name / path / f"{layout}.csv" for path in cells]
    else:
        kinds = ", ".join(f"{name}_{kind}_..." for kind in ("table", "figure", "analysis"))
        raise UserError(f"'{target}' is no target with runs (allowed: {name}, {name}_runs, {kinds})")


def _files(report: Report, *, tables: bool, figures: bool) -> list[Path]:
    files = [file for name in report.table_names() for file in report.table_inputs(name)] if tables else []
    return files + ([file for name in report.figure_names() for file in report.figure_inputs(name)] if figures else [])


def in_words(parts: Mapping[str, Estimate]) -> str:
    """One line per part, and their sum."""
    if not parts:
        return "nothing to train"
    rows = {**parts, "all": total(parts.values())} if len(parts) != 1 else parts
    width = max(map(len, rows))
    lines = [f"{'part':{width}}  {'runs':>6}  {'finished':>8}  {'hours':>10}  {'GiB':>8}"]
    for part, one in rows.items():
        gib = one.bytes / 2**30
        lines.append(f"{part:{width}}  {one.runs:6,}  {one.finished:8,}  {one.hours:10,.2f}  {gib:8,.2f}")
    return "\n".join(lines)
