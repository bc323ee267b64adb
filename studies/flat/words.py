"""What a benchmark of flatness shows, in words: so far, because a search goes on."""

from collections.abc import Iterator

import pandas as pd

from fedflat.analysis.comparison.comparable import Row
from fedflat.analysis.comparison.flat.pairs import BASE, NO, YES
from fedflat.analysis.comparison.flat.units import SETTING
from fedflat.analysis.comparison.report_table import number, with_interval
from fedflat.analysis.comparison.statistics.verdicts import BETTER, NONE, WORSE
from fedflat.analysis.layouts.titles import setting_title
from fedflat.bench.experiments.address import Setting
from fedflat.bench.tuning.protocol.schema import Protocol
from studies.flat.itself import Itself
from studies.flat.tables import percent_with_interval

NOTHING = "Nothing is stored yet: the search has not ended for any pair."


def pair_words(table: pd.DataFrame, protocol: Protocol) -> Iterator[str]:
    """How far the search has come, and what it says of the pairs of each setting."""
    if table.empty:
        yield NOTHING
        return
    seeds, pairs = len(protocol.tuning_seeds), len(protocol.all_pairs)
    needed = max(seeds, protocol.rule.least_units)
    for setting, rows in table.groupby(SETTING, sort=False):
        where = setting_title(Setting(*map(str, setting)))
        can_judge = (rows["n"] == seeds).all() and seeds >= protocol.rule.least_units
        least, most = rows["n"].min(), rows["n"].max()
        counts = str(least) if least == most else f"{least} to {most}"
        yield (
            f"{where}: {len(rows)} of {pairs} pairs have results so far, with {counts} of {seeds} tuning seeds"
            + ("." if can_judge else f"; without {needed} of them, there are numbers and no verdict.")
        )
        named = [f"{row['title']} − {row[f'title{BASE}']} {_difference(row)}" for row in rows.to_dict("records")]
        yield f"{where}, differences in test accuracy in points: {'; '.join(named)}."
        judged = rows[rows["verdict"] != NONE]
        if len(judged):
            counted = {name: int((judged["verdict"] == name).sum()) for name in (BETTER, WORSE)}
            yield (
                f"{where}: of {len(judged)} judged pairs, the perturbation is better in {counted[BETTER]}, worse in "
                f"{counted[WORSE]}, and undecided in the others."
            )
        if len(close := rows[~rows["state"].isin([YES, NO])]):
            yield f"{where}: {len(close)} pairs are not fitted, but their training accuracies are within a point."
        if len(unfit := rows[rows["state"] == NO]):
            names = ", ".join(f"{row['title']} − {row[f'title{BASE}']}" for row in unfit.to_dict("records"))
            yield f"{where}: not fitted, and outside the verdicts: {names}."


def itself_words(found: Itself) -> Iterator[str]:
    """How often methods differ from themselves, searched again."""
    table = found.table
    if table.empty:
        yield "Nothing is stored yet: no method was trained with the values of another tuning seed."
        return
    yield (
        "With the values of another tuning seed, the test accuracy of a method differs by "
        f"{number(table['size'].mean(), '.1f')} points on average over {len(table)} methods and their tuning seeds, "
        f"at most by {number(table['largest'].max(), '.1f')}."
    )
    judged = table.dropna(subset="differs")
    if judged.empty:
        yield "There are too few tuning seeds for the rule: these are numbers, and no rate of wrong verdicts."
        return
    yield f"By the rule, {int(judged['differs'].astype(bool).sum())} of {len(judged)} methods differ from themselves."
    for row in found.rates[found.rates["gap"] == 0].to_dict("records"):
        where = setting_title(Setting(*(row[key] for key in SETTING)))
        yield (
            f"{where}: in draws of these differences, the rule finds a difference in {percent_with_interval(row)} % of "
            "cases, all of them wrong (95 % interval, by resampling methods)."
        )


def search_words(trials: pd.DataFrame | None, ends: pd.DataFrame, protocol: Protocol) -> Iterator[str]:
    """How much was searched, and whether the ranges were wide enough."""
    if trials is None:
        yield "No trials are stored yet."
        return
    searches = trials.drop_duplicates([*SETTING, "method", "tuning_seed"])
    spent = trials["cpu_seconds"].sum() / 3600
    yield (
        f"{len(searches)} searches have ended, with {int((trials['outcome'] != 'taken').sum()):,} trials and "
        f"{number(spent, '.1f')} hours of one processor; the protocol has {protocol.budget.core_hours:g} hours for all."
    )
    if len(ends):
        at = ends.assign(start_end=ends["start_end"] != "", end=ends["end"] != "")
        cells = at.groupby([*SETTING, "method", "tuning_seed"])[["start_end", "end", "at_bound"]].any()
        yield (
            f"Winners within 5 % of an end of a range, or beyond: {cells['start_end'].sum()} of {len(cells)} with the "
            f"first ranges, {cells['end'].sum()} with the widened ones, {cells['at_bound'].sum()} of these at a bound."
        )


def left_out_words(protocol: Protocol) -> Iterator[str]:
    """Which methods are no pairs, and why."""
    if protocol.left_out:
        yield f"Left out: {'; '.join(f'{label} ({why})' for label, why in protocol.left_out.items())}."


def _difference(row: Row) -> str:
    return with_interval(row["difference"], row["low"], row["high"], "+.1f")
