"""How often the rule is wrong: each method against itself, with values that another search found.

a(m, k) is the test accuracy of method m with the values of tuning seed k, minus that with the values of the next tuning
seed, both with the training seeds of k. The method is the same, so that each verdict on these differences is wrong.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import t as student

from fedflat.analysis.comparison.flat.units import SETTING, tuning_seed
from fedflat.analysis.comparison.statistics.scores import Floats
from fedflat.analysis.measures.paired import flips
from fedflat.bench.tuning.protocol.schema import Protocol

GAPS = (1.0, 2.0, 4.0)
"""True differences in points, of which the share that is found is the power of the rule."""

SEED = 52


@dataclass(frozen=True)
class Itself:
    """`table`: one row per setting and method: units `n`, the mean of a, its mean and its largest size, and whether the
    rule finds a difference. `rates`: by setting and gap, the share of verdicts in draws of units with random signs, and
    its interval by resampling methods; no rows with too few units."""

    table: pd.DataFrame
    rates: pd.DataFrame


def differences(runs: pd.DataFrame, crossed: pd.DataFrame) -> pd.DataFrame:
    """One row per setting, method and tuning seed of `runs`: the difference `a` in points.

    `crossed`: runs with the same training seeds and the values of the next tuning seed.
    """
    keys = [*SETTING, "method", "seed"]
    both = runs.merge(crossed[[*keys, "test_accuracy"]], on=keys, suffixes=("", "_crossed"))
    both = both.assign(
        unit=both["tuning"].map(tuning_seed).astype(int), a=both["test_accuracy"] - both["test_accuracy_crossed"]
    )
    groups = both.groupby([*SETTING, "method", "unit"], sort=False)
    found = groups["a"].mean(skipna=False).reset_index()
    return found.assign(title=groups["title"].first().to_numpy()).dropna(subset="a")


def itself(found: pd.DataFrame, protocol: Protocol) -> Itself:
    """What the rule says of the `differences`, and how often it would be wrong and right in draws of them."""
    if found.empty:
        return Itself(pd.DataFrame(), pd.DataFrame())
    rows, rates = [], []
    for setting, in_setting in found.groupby(SETTING, sort=False):
        place = dict(zip(SETTING, setting, strict=True))
        judged: list[Floats] = []
        for method, group in in_setting.groupby("method", sort=False):
            a = group["a"].to_numpy(dtype=float)
            is_judged = len(a) >= protocol.rule.least_units
            judged += [a] if is_judged else []
            rows.append(
                {
                    **place,
                    "method": method,
                    "title": group["title"].iloc[0],
                    "n": len(a),
                    "mean": a.mean(),
                    "size": np.abs(a).mean(),
                    "largest": np.abs(a).max(),
                    "differs": bool(differs(a[None], protocol.rule.alpha)[0]) if is_judged else None,
                }
            )
        rates += [{**place, **one} for one in _rates(judged, protocol)]
    return Itself(pd.DataFrame(rows), pd.DataFrame(rates))


def differs(d: Floats, alpha: float) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Whether the rule of a pair finds a difference in rows of differences `[rows, units]`, each row by itself."""
    n = d.shape[1]
    sums, sizes = d.sum(axis=1), np.abs(d).sum(axis=1)
    p = np.mean(np.abs(flips(n) @ d.T) >= np.abs(sums) - 1e-9 * sizes, axis=0)
    limit = float(student.ppf(1 - alpha / 2, n - 1)) * d.std(axis=1, ddof=1) / math.sqrt(n)
    return np.asarray((p < alpha) & (np.abs(sums) / n > limit))


def _rates(judged: Sequence[Floats], protocol: Protocol) -> list[dict[str, float]]:
    """One row for each gap: the share of verdicts over methods and draws, and its 95 % interval."""
    if not judged:
        return []
    rng, count = np.random.default_rng(SEED), protocol.same_against_itself.resamples
    drawn = [_drawn(a, count, rng, signs=protocol.same_against_itself.random_signs) for a in judged]
    chosen = rng.integers(len(judged), size=(count, len(judged)))
    rows = []
    for gap in (0.0, *GAPS):
        by_method = np.array([differs(d + gap, protocol.rule.alpha).mean() for d in drawn])
        low, high = np.quantile(by_method[chosen].mean(axis=1), (0.025, 0.975))
        rows.append({"gap": gap, "methods": len(judged), "rate": by_method.mean(), "low": low, "high": high})
    return rows


def _drawn(a: Floats, count: int, rng: np.random.Generator, *, signs: bool) -> Floats:
    """Units drawn with replacement, each with a random sign: which search comes first says nothing."""
    d = a[rng.integers(len(a), size=(count, len(a)))]
    return d * rng.choice([-1.0, 1.0], size=d.shape) if signs else d
