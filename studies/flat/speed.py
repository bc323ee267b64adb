"""The second leaderboard: how many rounds, and how much communication, a method needs to fit its training data."""

import pandas as pd

from fedflat.analysis.comparison.flat.units import SETTING


def speed(units: pd.DataFrame) -> pd.DataFrame:
    """One row per setting and method: units that reach a fitted model in each run, and their mean rounds and megabytes.

    Methods that reach it in all units come first, the fastest in front; then the others, by how many do.
    """
    rows = []
    for key, group in units.groupby([*SETTING, "method"], sort=False):
        reached = group.dropna(subset="fit_round")
        rows.append(
            {
                **dict(zip([*SETTING, "method"], key, strict=True)),
                "title": group["title"].iloc[0],
                "units": len(group),
                "reached": len(reached),
                "fit_round": reached["fit_round"].mean(),
                "fit_mb": reached["fit_mb"].mean(),
                "test_accuracy": group["test_accuracy"].mean(skipna=False),
            }
        )
    if not rows:
        return pd.DataFrame(rows)
    table = pd.DataFrame(rows).assign(missed=lambda found: found["units"] - found["reached"])
    return table.sort_values([*SETTING, "missed", "fit_round"]).drop(columns="missed").reset_index(drop=True)
