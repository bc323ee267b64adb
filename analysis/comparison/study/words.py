"""The answer of a study in words: which measures order the runs as their results do, and how much each one says."""

from collections.abc import Iterator

import pandas as pd

from fedflat.analysis.comparison.report_table import number
from fedflat.analysis.comparison.study.information import K
from fedflat.analysis.comparison.study.levels import BETWEEN, WITHIN
from fedflat.analysis.comparison.study.measures import FLATNESS, NAMES, RANDOM, RESULTS, TRAIN_LOSS
from fedflat.analysis.comparison.study.study import EVERY, POOLED, Study

_BETTER = {
    "test_accuracy": (-1, "higher test accuracies"),
    "generalisation_gap": (1, "smaller generalisation gaps"),
}
"""By result: the sign of τ if flatter models have the better results, and these results in words."""

_LEVELS = {
    "between methods": {"level": BETWEEN, "given": ""},
    "between methods, given the training loss": {"level": BETWEEN, "given": TRAIN_LOSS},
    "within methods": {"level": WITHIN, "given": ""},
}


def words(study: Study) -> Iterator[str]:
    """One sentence for each result and level, and one on what each measure says that the axes do not."""
    for result in RESULTS:
        yield from _training_loss(study, result)
        for heading, values in _LEVELS.items():
            rows = study.rows(study.correlations, runs=EVERY, result=result, setting=POOLED, **values)
            rows = rows[rows["measure"].isin(FLATNESS) & rows["tau"].notna()]
            if len(rows):
                yield f"{RESULTS[result].capitalize()}, {heading}: {_direction(rows, result)}."
        yield _information(study, result)
    yield (
        "In parentheses: Kendall's τ, the mean over the settings. A relation is shown if the 95 % interval does not "
        "contain 0; intervals are not corrected for the number of measures."
    )


def _training_loss(study: Study, result: str) -> Iterator[str]:
    """How closely the training loss alone orders methods as their results do, compared with the flatness measures."""
    rows = study.rows(study.correlations, runs=EVERY, result=result, setting=POOLED, **_LEVELS["between methods"])
    of = rows.dropna(subset="tau").set_index("measure")["tau"]
    if TRAIN_LOSS not in of:
        return
    stronger = rows[rows["measure"].isin(FLATNESS) & (rows["tau"].abs() > abs(of[TRAIN_LOSS]))]
    yield (
        f"{RESULTS[result].capitalize()}, between methods: the training loss alone has τ "
        f"{number(of[TRAIN_LOSS], '+.2f')}; "
        + (f"stronger: {_listed(stronger)}." if len(stronger) else "no flatness measure orders the methods as well.")
    )


def _direction(rows: pd.DataFrame, result: str) -> str:
    """By which measures flatter or sharper models have the better results, if the intervals show it."""
    sign, better = _BETTER[result]
    if rows["low"].isna().all():
        return f"too few methods or seeds for intervals; τ: {_listed(rows)}"
    low, high = rows["low"] * sign, rows["high"] * sign
    flatter, sharper = rows[low.combine(high, min) > 0], rows[low.combine(high, max) < 0]
    unclear = rows.drop([*flatter.index, *sharper.index])
    parts = {
        f"flatter models have {better} by": flatter,
        f"sharper models have {better} by": sharper,
        "no relation is shown by": unclear,
    }
    return "; ".join(f"{text} {_listed(chosen)}" for text, chosen in parts.items() if len(chosen))


def _listed(rows: pd.DataFrame) -> str:
    """Measures with their τ, the strongest first."""
    ordered = rows.reindex(rows["tau"].abs().sort_values(ascending=False, kind="stable").index)
    return ", ".join(f"{NAMES[row['measure']]} ({number(row['tau'], '+.2f')})" for row in ordered.to_dict("records"))


def _information(study: Study, result: str) -> str:
    rows = study.rows(study.information, runs=EVERY, result=result, axis=K).set_index("measure")["value"]
    flatness = rows[rows.index.isin(FLATNESS)].sort_values(ascending=False, kind="stable")
    listed = ", ".join(f"{NAMES[str(measure)]} {number(value, '.3f')}" for measure, value in flatness.items())
    return (
        f"{RESULTS[result].capitalize()}, conditional information K, from 0 (nothing) to 1: {listed}; random numbers "
        f"{number(rows[RANDOM], '.3f')}."
    )
