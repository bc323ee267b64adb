"""The primary question: what does a perturbation add to its base? Differences method − base, paired by tuning seed.

Both searches of a pair share the tuning seed, and both have the same training seeds, so that a unit's difference has
the noise of both searches in it. A pair counts if both methods are fitted, by the mean training accuracy of their
units, or if these accuracies differ by at most a point: then neither is further trained than the other.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedflat.analysis.comparison.flat.units import SETTING
from fedflat.analysis.comparison.statistics.verdicts import NONE, verdict
from fedflat.analysis.measures.fitting import FITTED, ROUNDING
from fedflat.analysis.measures.paired import interval, sign_flip, sign_flip_corrected
from fedflat.bench.tuning.protocol.schema import Protocol

YES, CLOSE, NO = "fitted", "within a point", "not fitted"
"""Whether a pair counts."""

SHOWN = ["train_accuracy", "validation_accuracy", "test_accuracy", "generalisation_gap", "lambda_max"]
"""The columns whose means are shown side by side."""

BASE = "_base"
"""The end of a column's name with the base's value."""


def pairs(
    units: pd.DataFrame, protocol: Protocol, equal_compute: Mapping[str, pd.DataFrame] | None = None
) -> pd.DataFrame:
    """One row per setting and pair with common tuning seeds, in the order of the protocol.

    `n` of them; the mean `difference` of test accuracies in points, its interval and p-values, corrected for all pairs
    of the setting that have enough units; whether the pair counts (`state`) and its verdict, which needs enough units;
    means of both, side by side; and `difference_NAME` of each row of equal compute from the base, with as many units.
    `equal_compute`: their units by name; their methods have the labels of their bases.
    """
    rows, differences = [], {}
    for setting, in_setting in units.groupby(SETTING, sort=False):
        of = dict(iter(in_setting.groupby("method", sort=False)))
        for group, listed in protocol.pairs.items():
            for label, base in (pair for pair in listed if pair[0] in of and pair[1] in of):
                both = of[label].merge(of[base], on="seed", suffixes=("", BASE)).sort_values("seed")
                both = both.dropna(subset=["test_accuracy", f"test_accuracy{BASE}"])
                if both.empty:
                    continue
                d = both["test_accuracy"] - both[f"test_accuracy{BASE}"]
                differences[(setting, label)] = dict(zip(both["seed"], d, strict=True))
                place = {**dict(zip(SETTING, setting, strict=True)), "group": group, "method": label, "base": base}
                rows.append({**place, **_of_pair(both, protocol), **_more_compute(of[base], equal_compute or {})})
    return _with_verdicts(pd.DataFrame(rows), differences, protocol)


def _of_pair(both: pd.DataFrame, protocol: Protocol) -> dict[str, Any]:
    """The numbers of a pair, of whose units `both` has the columns side by side."""
    d = both["test_accuracy"] - both[f"test_accuracy{BASE}"]
    low, high = interval(d)
    means = {f"{name}{end}": both[f"{name}{end}"].mean() for name in SHOWN if name in both for end in ("", BASE)}
    trained, least = (means["train_accuracy"], means[f"train_accuracy{BASE}"]), protocol.fitted.least
    return {
        "title": both["title"].iloc[0],
        f"title{BASE}": both[f"title{BASE}"].iloc[0],
        "n": len(both),
        "difference": float(d.mean()),
        "low": low,
        "high": high,
        **{f"fitted{end}": int(both[f"fitted{end}"].sum()) for end in ("", BASE)},
        **means,
        "state": state_of_pair(*trained, least, protocol.rounds.otherwise.within_points),
    }


def _more_compute(of_base: pd.DataFrame, equal_compute: Mapping[str, pd.DataFrame]) -> dict[str, float]:
    """What the rows of equal compute add to a base, and in how many units."""
    found: dict[str, float] = {}
    keys = [*SETTING, "method", "seed"]
    for name, table in equal_compute.items():
        both = of_base.merge(table[[*keys, "test_accuracy"]], on=keys, suffixes=("", BASE))
        d = (both[f"test_accuracy{BASE}"] - both["test_accuracy"]).dropna()
        found |= {f"difference_{name}": d.mean(), f"n_{name}": len(d)}
    return found


def _with_verdicts(
    table: pd.DataFrame, differences: Mapping[tuple[Any, str], Mapping[int, float]], protocol: Protocol
) -> pd.DataFrame:
    """The table with p-values and verdicts. A family has all pairs of a setting with the seeds of the protocol."""
    if table.empty:
        return table
    table = table.assign(p=math.nan, p_corrected=math.nan, verdict=NONE)
    for setting, rows in table.groupby(SETTING, sort=False):
        judged = [k for k in rows.index if rows.loc[k, "n"] == len(protocol.tuning_seeds) >= protocol.rule.least_units]
        if not judged:
            continue
        found = [differences[(setting, table.loc[k, "method"])] for k in judged]
        d = np.array([[one[seed] for one in found] for seed in sorted(found[0])])
        corrected = sign_flip_corrected(d)
        for k, own, p in zip(judged, d.T, corrected, strict=True):
            table.loc[k, ["p", "p_corrected"]] = [sign_flip(own), p]
            if table.loc[k, "state"] != NO:
                table.loc[k, "verdict"] = verdict(table.loc[k, "low"], table.loc[k, "high"], float(p))
    return table


def state_of_pair(train: float, train_base: float, least: float = FITTED, within: float = 1.0) -> str:
    """Whether a pair counts, by the mean training accuracies of the method and its base in percent."""
    if min(train, train_base) >= least - ROUNDING:
        return YES
    return CLOSE if abs(train - train_base) <= within + ROUNDING else NO
