"""The report on tuning: its parts, as far as there are data, and the answer in words."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fedflat.analysis.comparison.report.words import counts
from fedflat.analysis.comparison.report_pages import write_pages
from fedflat.analysis.comparison.report_table import number
from fedflat.analysis.comparison.statistics.scores import LEAST_SEEDS
from fedflat.analysis.comparison.tuning import figures, tables
from fedflat.analysis.comparison.tuning.budget import RanksByBudget
from fedflat.analysis.comparison.tuning.early_stopping import EarlyStopping
from fedflat.analysis.comparison.tuning.gain import Gain
from fedflat.analysis.comparison.tuning.source import TuningSource
from fedflat.analysis.comparison.tuning.tables import REPORT, trials_heading
from fedflat.analysis.figures.base import TEXT_WIDTH
from fedflat.bench.input.errors import UserError

_Part = TypeVar("_Part")


@dataclass(frozen=True)
class TuningReport:
    """`missing`: in words, which part has no data, and why."""

    name: str
    gain: Gain | None
    budget: RanksByBudget | None
    stopping: EarlyStopping | None
    missing: tuple[str, ...]

    @classmethod
    def of(cls, source: TuningSource) -> "TuningReport":
        """The report on what a source has; a `UserError` if it has neither runs nor trials."""
        missing = dict[str, UserError]()
        gain = _unless_missing("Gain of tuning", source.gain, missing)
        budget = _unless_missing("Number of trials", source.budget, missing)
        if gain is None and budget is None:
            raise next(iter(missing.values()))
        stopping = None
        if gain is not None and budget is not None:
            stopping = _unless_missing("Early stopping", source.early_stopping, missing)
        reasons = tuple(f"{part}: not shown, because {error}." for part, error in missing.items())
        return cls(source.name, gain, budget, stopping, reasons)

    def words(self) -> Iterator[str]:
        """The answer in sentences, and which part is missing."""
        if self.gain is not None:
            yield from gain_words(self.gain)
        if self.budget is not None:
            yield from budget_words(self.budget)
        if self.stopping is not None:
            yield from stopping_words(self.stopping)
        yield from self.missing

    def write(self, folder: Path, width: float = TEXT_WIDTH) -> Path:
        """Write tables, figures and pages; `width` of figures in inches. Return tuning.md."""
        drawn, shown = [], []
        if self.gain is not None:
            drawn += list(figures.of_gain(self.gain, width))
            shown += list(tables.of_gain(self.gain))
        if self.budget is not None:
            drawn += list(figures.of_budget(self.budget, width))
            shown += list(tables.of_budget(self.budget))
        if self.stopping is not None:
            shown.append(tables.of_early_stopping(self.stopping))
        head = ["# What tuning changes", "", f"Data: {self.name}.", *(f"\n{line}" for line in self.words())]
        return write_pages(folder, REPORT, head, drawn, shown, width)


def _unless_missing(part: str, make: Callable[[], _Part], missing: dict[str, UserError]) -> _Part | None:
    """A part of the report; None if its data are missing, and the reason among those of the missing parts."""
    try:
        return make()
    except UserError as error:
        missing[part] = error
        return None


def gain_words(gain: Gain) -> Iterator[str]:
    """How much methods gain, and how the ranking changes."""
    table = gain.of_setting()
    titles = gain.titles
    yield from _amount_words(gain)
    if table["verdict"].any():
        yield f"Tuned against untuned values: {counts(table['verdict'])}."
    else:
        yield f"No verdict on single methods: {gain.seeds} seeds; a verdict needs at least {LEAST_SEEDS}."
    if len(table) > 1:
        tuned = table.iloc[0]
        [untuned, *_] = table.sort_values("rank_untuned", kind="stable").to_dict("records")
        yield (
            f"Rankings: Kendall's τ of the untuned with the tuned one is {number(gain.tau(), '.2f')}. The best untuned "
            f"method, {titles[untuned['method']]}, has rank {untuned['rank_tuned']:g} when all are tuned; "
            f"the best tuned one, {titles[tuned['method']]}, has rank {tuned['rank_untuned']:g} untuned."
        )
    if gain.kept:
        yield f"In {gain.kept} of {gain.cells} cells, no trial was better than the untuned values: the gain there is 0."
    yield from (f"{note[0].upper()}{note[1:]}." for note in gain.notes)


def _amount_words(gain: Gain) -> Iterator[str]:
    """The mean, lowest and highest gain of the methods that have both means, and how many methods have not."""
    table = gain.of_setting()
    measured = table[table[["mean_untuned", "mean_tuned"]].notna().all(axis=1)]
    if len(measured):
        *_, low = by_gain = measured.sort_values("gain", ascending=False, kind="stable").to_dict("records")
        high = by_gain[0]
        yield (
            f"Tuning with {' or '.join(map(str, gain.trials))} trials changes the test accuracy by "
            f"{number(measured['gain'].mean(), '+.1f')} points on average over {len(measured)} "
            f"method{'s' * (len(measured) != 1)}, from {number(low['gain'], '+.1f')} ({gain.titles[low['method']]}) to "
            f"{number(high['gain'], '+.1f')} ({gain.titles[high['method']]})."
        )
    if lost := len(table) - len(measured):
        yield f"Methods without a gain, because all untuned or all tuned runs of a setting diverged: {lost}."


def budget_words(budget: RanksByBudget) -> Iterator[str]:
    """How close the rankings after fewer trials are to the ranking after all trials."""
    table = budget.stability_of(budget.shown).set_index("trials")
    last = budget.trials
    parts = [
        f"after {trials_heading(n)}, τ is {number(table['tau'][n], '.2f')}, and the winner is another one in "
        f"{100 * table['other_winner'][n]:.0f} %"
        for n in budget.numbers[:-1]
    ]
    yield (
        f"Validation ranking after fewer trials compared with that after {last}, by Kendall's τ and the share of "
        f"orders of the trials in which another method wins: {'; '.join(parts)}."
    )


def stopping_words(stopping: EarlyStopping) -> Iterator[str]:
    """What the search of the tuned values has lost because it stopped trials early."""
    lost = stopping.table["lost"]
    words = (
        f"Early stopping chose the best of {stopping.trials} trials in {int((lost == 0).sum())} of {len(lost)} cells"
    )
    if (lost > 0).any():
        worst = stopping.table.iloc[0]
        words += (
            f"; in the others, it lost {number(lost[lost > 0].mean(), '.1f')} points of validation accuracy on "
            f"average, at most {number(worst['lost'], '.1f')} ({worst['title']})"
        )
    yield f"{words}."
