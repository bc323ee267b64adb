"""The answer in words: better than how many rivals, at what cost; the best rivals, and what could be detected."""

import json
import math
from collections.abc import Sequence

import pandas as pd

from fedflat.analysis.comparison.comparable import origin_notes
from fedflat.analysis.comparison.compare import Comparison
from fedflat.analysis.comparison.run_table import rule_of
from fedflat.analysis.comparison.statistics.costs import REFERENCE, costs, stored_costs
from fedflat.analysis.comparison.statistics.flatness import stored_measures
from fedflat.analysis.comparison.statistics.scores import LEAST_SEEDS, Scores
from fedflat.analysis.comparison.statistics.verdicts import ALPHA, BETTER, POWER, UNCLEAR, WORSE, detectable_difference
from fedflat.analysis.comparison.tuning import search_budgets
from fedflat.analysis.layouts.run_columns import ROUNDS_TO
from fedflat.analysis.layouts.titles import setting_title
from fedflat.analysis.measures.paired import CONFIDENCE
from fedflat.bench.experiments.address import IDS, Setting

RULE = (
    f"Better or worse: the corrected p-value of the paired differences is below {ALPHA:g}, and their "
    f"{100 * CONFIDENCE:g} % interval excludes 0. P-values over all settings are corrected for the number of rivals; "
    "those in single settings, for all rivals and settings together."
)

COUNTED_AS = (
    "Differences, intervals, tests and ranks count a run without a value (it diverged, or missed a target) as the "
    "worst other run of its setting."
)

_MOST_RIVALS = 3
_MANY_SEEDS = 10


def verdict(comparison: Comparison) -> list[str]:
    """The sentences of the verdict over all settings: counts and costs; the best rivals and what was detectable.

    Further ones say so if there are few seeds, if runs of the method have no value, or if it and its rivals were tuned
    with different budgets.
    """
    scores, at, lost = comparison.scores, relative_costs(comparison), _own_lost(comparison)
    if not scores.is_judged:
        return [
            *comparison.lead,
            too_few_seeds(scores),
            f"{_best_rivals(comparison)}{f', {at}' if at else ''}.",
            *lost,
            *unequal_budgets(comparison),
        ]
    size = detectable_difference(scores, comparison.method)
    found = (
        f"with {len(scores.seeds)} seeds, a difference of {_amount(comparison, size)} "
        f"is found with a probability of {100 * POWER:g} % for a rival with the median spread"
    )
    counted = counts(comparison.verdicts["verdict"], f" ({comparison.variant})")
    return [
        *comparison.lead,
        f"{comparison.titles[comparison.method]}: {counted}{f'; {at}' if at else ''}.",
        f"{_best_rivals(comparison)}; {found}.",
        *_few_seeds(scores),
        *lost,
        *unequal_budgets(comparison),
    ]


def lost_word(comparison: Comparison) -> str:
    """What a run without a value has done."""
    return "missed" if comparison.metric.startswith(ROUNDS_TO) else "diverged"


def note_on_means(comparison: Comparison) -> list[str]:
    """The note of a table or figure of means if a run has no value."""
    return [
        f"Means are those of the runs that have a value; '2 of 10 {lost_word(comparison)}': so many have none. Without "
        "any such run in a setting, there is no mean over the settings."
    ] * bool(comparison.scores.missing.any())


def note_on_tests(comparison: Comparison) -> list[str]:
    """The note of a table or figure of differences or ranks if a run has no value."""
    return [COUNTED_AS] * bool(comparison.scores.missing.any())


def _own_lost(comparison: Comparison) -> list[str]:
    """A sentence if runs of the method have no value."""
    missing = comparison.scores.missing[comparison.scores.place(comparison.method)]
    if not missing.any():
        return []
    did = "missed the target" if lost_word(comparison) == "missed" else "diverged"
    lost = f"{missing.sum()} of {missing.size} runs of {comparison.titles[comparison.method]} {did}"
    return [f"{lost}; each counts as the worst other run of its setting."]


def unequal_budgets(comparison: Comparison) -> list[str]:
    """A sentence if the method and its rivals were tuned with different budgets."""
    found = search_budgets.unequal(*_own_and_rivals(comparison))
    return [f"Budgets of tuning differ: {comparison.titles[comparison.method]} {'; '.join(found)}."] if found else []


def _own_and_rivals(comparison: Comparison) -> tuple[pd.DataFrame, pd.DataFrame]:
    is_own = comparison.rows["method"] == comparison.method
    return comparison.rows[is_own], comparison.rows[~is_own]


def of_setting(comparison: Comparison, setting: Setting) -> str:
    """The verdict in one setting, such as 'better than 3 of 26, cannot tell from 22, worse than 1'."""
    return counts(comparison.by_setting[setting]["verdict"])


def counts(found: Sequence[str] | pd.Series, of: str = "") -> str:
    """Verdicts in words: 'better than 19 of 26 (tuned), cannot tell from 5, worse than 2'."""
    number = pd.Series(found).value_counts()
    better, unclear, worse = (int(number.get(kind, 0)) for kind in (BETTER, UNCLEAR, WORSE))
    return f"better than {better} of {len(found)}{of}, cannot tell from {unclear}, worse than {worse}"


def about(comparison: Comparison) -> list[str]:
    """The method's values, what was left out, and which parts of the report are missing because runs lack columns."""
    own, rivals = _own_and_rivals(comparison)
    title = comparison.titles[comparison.method]
    missing = {
        "no costs: they are not stored for all methods": not stored_costs(comparison.rows),
        f"no costs relative to {REFERENCE}: it is not among the methods": REFERENCE not in comparison.scores.methods,
        "no flatness: fewer than two methods have a stored measure such as lambda_max": not stored_measures(
            comparison.rows
        ),
    }
    return [
        *_values(own, f"{comparison.method} (experiment {comparison.experiment})"),
        f"reported value: {rule_of(own['report'].iloc[0]).description}",
        *search_budgets.notes(own, rivals, title),
        *origin_notes(own, rivals, title, comparison.grid, comparison.baselines),
        *comparison.notes,
        *(text for text, is_so in missing.items() if is_so),
    ]


def _values(own: pd.DataFrame, name: str) -> list[str]:
    """The method's hyper-parameters and training values; one line per setting if they differ."""
    by_setting = {}
    for setting, rows in own.groupby(IDS[:3], sort=False):
        values = json.loads(rows["hyperparameters"].iloc[0]) | json.loads(rows["training"].iloc[0])
        by_setting[Setting(*map(str, setting))] = ", ".join(f"{key} {value}" for key, value in values.items())
    if len(set(by_setting.values())) == 1:
        return [f"{name}: {next(iter(by_setting.values()))}"]
    return [f"{name}, {setting_title(setting)}: {values}" for setting, values in by_setting.items()]


def too_few_seeds(scores: Scores) -> str:
    """Why there is no verdict."""
    return (
        f"No verdict: {len(scores.seeds)} seed{'s' * (len(scores.seeds) != 1)}; a verdict needs at least {LEAST_SEEDS}."
    )


def _few_seeds(scores: Scores) -> list[str]:
    """A sentence if there are hardly more seeds than a verdict needs."""
    if len(scores.seeds) >= _MANY_SEEDS:
        return []
    return [f"A verdict needs at least {LEAST_SEEDS} seeds; more seeds give more verdicts."]


def relative_costs(comparison: Comparison) -> str:
    """For example 'at 2.0 × the gradients and 1.0 × the traffic of FedAvg'; empty if FedAvg's costs are not stored."""
    table = costs(comparison.rows, comparison.scores).set_index("method")
    parts = []
    for cost, name in (("gradients", "gradients"), ("communicated_mb", "traffic")):
        if (column := f"{cost}_relative") in table and math.isfinite(times := table[column][comparison.method]):
            parts.append(f"{times:.1f} × the {name}")
    return f"at {' and '.join(parts)} of {comparison.titles[REFERENCE]}" if parts else ""


def _best_rivals(comparison: Comparison) -> str:
    """The best rivals, and how far the method is above or below them if it has a mean."""
    best = comparison.verdicts.head(_MOST_RIVALS)
    begin = f"Best rival{'s' * (len(best) > 1)}: "
    if best["mean"].isna().any():
        return begin + ", ".join(comparison.titles[rival] for rival in best["rival"])
    named = [
        f"{_relation(comparison, row['difference'])} {comparison.titles[row['rival']]}"
        for row in best.to_dict("records")
    ]
    return f"{begin}{comparison.titles[comparison.method]} is {', '.join(named)}"


def _relation(comparison: Comparison, difference: float) -> str:
    """For example '0.8 points above'."""
    return f"{_amount(comparison, abs(difference))} {'above' if difference >= 0 else 'below'}"


def _amount(comparison: Comparison, size: float) -> str:
    """A difference with its unit."""
    if comparison.quantity.unit != "%":
        return f"{size:.3g}"
    return f"{size:.1f} points" if size >= 0.05 else f"{size:.2f} points"
