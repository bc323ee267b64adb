"""The primary question: what does a perturbation add to its base? Differences method − base, paired by tuning seed.

Both searches of a pair share the tuning seed, and both have the same training seeds, so that a unit's difference has
the noise of both searches in it.
"""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from analysis.comparison.flat.gate import NO, SHOWN, state_of_pair
from analysis.comparison.flat.regime import SETTING
from analysis.comparison.statistics.verdicts import NONE, verdict
from analysis.measures.paired import interval, sign_flip, sign_flip_corrected
from bench.tuning.protocol.schema import Protocol

BASE = "_base"
"""The end of a column's name with the base's value."""


def pairs(units: pd.DataFrame, protocol: Protocol, beside: Mapping[str, pd.DataFrame] | None = None) -> pd.DataFrame:
    """One row per setting and pair with common tuning seeds, in the order of the protocol.

    `n` of them; the mean `difference` of test accuracies in points, its interval and p-values, corrected for all pairs
    of the setting that have enough units; whether the pair counts (`state`) and its verdict, which needs enough units;
    means of both, side by side; and `difference_NAME` of each row of equal compute from the base, with as many units.
    `beside`: their units by name; their methods have the labels of their bases.
    """
    rows, differences = [], {}
    for setting, in_setting in units.groupby(SETTING, sort=False):
        of = {label: rows.set_index("seed") for label, rows in in_setting.groupby("method", sort=False)}
        for group, listed in protocol.pairs.items():
            for label, base in listed:
                if label not in of or base not in of:
                    continue
                both = (
                    of[label]
                    .join(of[base], how="inner", rsuffix=BASE)
                    .dropna(subset=["test_accuracy", f"test_accuracy{BASE}"])
                )
                if both.empty:
                    continue
                both = both.sort_index()
                d = (both["test_accuracy"] - both[f"test_accuracy{BASE}"]).to_numpy(dtype=float)
                differences[(setting, label)] = dict(zip(both.index, d, strict=True))
                low, high = interval(d)
                means = {
                    f"{column}{end}": both[f"{column}{end}"].mean() for column in _shown(both) for end in ("", BASE)
                }
                rows.append(
                    {
                        **dict(zip(SETTING, setting, strict=True)),
                        "group": group,
                        "method": label,
                        "base": base,
                        "title": both["title"].iloc[0],
                        f"title{BASE}": both[f"title{BASE}"].iloc[0],
                        "n": len(d),
                        "difference": float(d.mean()),
                        "low": low,
                        "high": high,
                        "fitted": int(both["fitted"].sum()),
                        f"fitted{BASE}": int(both[f"fitted{BASE}"].sum()),
                        **means,
                        "state": state_of_pair(
                            means["train_accuracy"],
                            means[f"train_accuracy{BASE}"],
                            protocol.fitted.least,
                            protocol.rounds.otherwise.within_points,
                        ),
                        **_beside(setting, base, of[base], beside or {}),
                    }
                )
    return _with_verdicts(pd.DataFrame(rows), differences, protocol)


def _shown(both: pd.DataFrame) -> list[str]:
    return [column for column in SHOWN if column in both]


def _beside(
    setting: tuple[str, ...], base: str, of_base: pd.DataFrame, beside: Mapping[str, pd.DataFrame]
) -> dict[str, float]:
    """What the rows of equal compute add to a base, and in how many units."""
    found: dict[str, float] = {}
    for name, table in beside.items():
        of_setting = (table[SETTING] == list(setting)).all(axis=1) & (table["method"] == base)
        other = table[of_setting].set_index("seed")["test_accuracy"]
        d = (other - of_base["test_accuracy"]).dropna()
        found |= {f"difference_{name}": d.mean() if len(d) else math.nan, f"n_{name}": len(d)}
    return found


def _with_verdicts(
    table: pd.DataFrame, differences: Mapping[tuple[tuple[str, ...], str], Mapping[int, float]], protocol: Protocol
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
