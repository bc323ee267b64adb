"""Whether the runs of an entry are as the paper states, so that they can be judged: their settings and evaluations."""

from collections.abc import Iterable
from dataclasses import dataclass

from fedflat.analysis.layouts.quantities import quantity
from fedflat.analysis.measures.convergence import FinalValue
from fedflat.analysis.published.transcript import Departure, Difference, departures, silent_differences, value_of
from fedflat.analysis.tables.layout import Column
from fedflat.analysis.tables.values import rule_of
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.run_config import RunConfig

DEPARTS = "departs from the paper"
"""Why an entry is not judged, if at least one of its settings is not as printed."""

ESSENTIAL = {"method.name", "dataset.name", "model.name", "partition.name", "training.rounds"}
"""Keys that must be those of the paper's own experiment where the paper does not state them."""


@dataclass(frozen=True)
class Fairness:
    """Whether an entry can be judged. `why`: why not, empty if it can.

    `departures`: values other than the printed ones; `silent`: differences in what the paper does not state.
    """

    why: str = ""
    departures: tuple[Departure, ...] = ()
    silent: tuple[Difference, ...] = ()

    @property
    def is_fair(self) -> bool:
        """Whether the entry is judged."""
        return not self.why


FAIR = Fairness()
"""An entry that can be judged, with the paper's own settings."""

INCOMPLETE = Fairness("incomplete data set")
"""An entry whose runs were trained when images of the published data set were missing."""


def fairness(
    paper: str,
    cells: Iterable[CellAddress],
    experiment: Experiment,
    papers_own: Experiment,
    column: Column,
    of_table: FinalValue,
) -> Fairness:
    """Whether an entry over these cells can be judged; `of_table`: the table's reported value for its method.

    Its settings are compared with the transcript of the paper. Seeds, engine and saved states are free, and so is the
    evaluation, if the column needs no other. `papers_own`, the paper's own experiment, says which settings the paper
    has, and which values FedFlat chose where the paper says nothing. In a column of another reading, the keys in which
    it departs on purpose have the values of the paper's own experiment.
    """
    if experiment.report is not None and column.follows_protocol:
        return Fairness(f"report is set to {experiment.report}")
    departing: dict[Departure, None] = {}
    silent: dict[Difference, None] = {}
    for cell in cells:
        if experiment.scale != "paper":
            return Fairness("another scale")
        if not (experiment.has_cell(cell) and papers_own.has_cell(cell)):
            return Fairness("not a setting of the paper")
        run, own = (one.cell(cell.path).runs[0] for one in (experiment, papers_own))
        meant = _departs_as_meant(run, own, column)
        departs, differs = compared(paper, cell, run, own)
        departing |= dict.fromkeys(one for one in departs if one.key not in meant)
        silent |= dict.fromkeys(differs)
        if not departing and (why := other_evaluation(run, own, column, of_table)):
            return Fairness(why)
    return Fairness(DEPARTS if departing else "", tuple(departing), tuple(silent))


def compared(
    paper: str, cell: CellAddress, run: RunConfig, own: RunConfig
) -> tuple[tuple[Departure, ...], tuple[Difference, ...]]:
    """Where the settings of a run of this cell depart from the paper, and where they differ but the paper is silent.

    `own`: the run of the paper's own experiment. Seeds, engine and evaluation may always differ.
    """
    silent = silent_differences(paper, cell, run, own)
    essential = [Departure(one.key, one.here, one.own, "") for one in silent if one.key in ESSENTIAL]
    return (*departures(paper, cell, run), *essential), tuple(one for one in silent if one.key not in ESSENTIAL)


def _departs_as_meant(run: RunConfig, own: RunConfig, column: Column) -> set[str]:
    """The keys in which the column's reading departs from the paper, and the run has the value of the reading."""
    if column.reading is None or not column.reading.departs:
        return set()
    ours, meant = run.model_dump(), own.model_dump()
    return {key for key in column.reading.departs if value_of(ours, key) == value_of(meant, key)}


def has_reading(runs: Iterable[tuple[RunConfig, RunConfig]], column: Column) -> bool:
    """Whether a column shows its reading: one of its runs has the reading's values of all keys in which it departs.

    `runs`: the runs of the column, each with that of the paper's own experiment; without any, the reading stays.
    """
    departs = set() if column.reading is None else {*column.reading.departs}
    pairs = list(runs) if departs else []
    return not pairs or any(_departs_as_meant(run, own, column) == departs for run, own in pairs)


def other_evaluation(run: RunConfig, own: RunConfig, column: Column, of_table: FinalValue) -> str:
    """Why a column needs other evaluations than those of a run; empty if it does not.

    The first round that reaches a target depends on all evaluations, so it needs at least those of the paper's own
    experiment. The time of a round contains its evaluation, so it needs the same rounds and the same images.
    """
    shown, stop = quantity(column.metric), run.evaluation.stop
    is_target = shown.file == "convergence"
    until = (None if stop is None else stop.target) or 0
    reaches = is_target and not isinstance(column.target, str) and (column.target or 0) <= until
    if stop is not None and not reaches:
        return "stops early" if stop.target is None else f"stops at {stop.target:g} %"
    if column.metric == "seconds_per_round":
        same_images = run.evaluation.training_images == own.evaluation.training_images
        return "" if same_images and run.evaluated_rounds == own.evaluated_rounds else "evaluated otherwise"
    needed = own.evaluated_rounds if is_target else set()
    if shown.file == "metrics" and not shown.in_each_round:
        needed = _needed(rule_of(column, of_table), int(run.training.rounds * shown.share))
    return "" if needed <= run.evaluated_rounds else "evaluated too rarely"


def _needed(final: FinalValue, last: int) -> set[int]:
    """The rounds whose evaluations decide a reported value, if the last one is the round `last`."""
    if final.rule == "best":
        return set(range(1, last + 1))
    return set(range(max(1, last + 1 - (final.n or 1)), last + 1))
