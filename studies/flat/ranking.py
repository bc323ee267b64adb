"""The ranking of the methods whose models fit their training data, and the others below."""

import pandas as pd

from fedflat.analysis.comparison.flat.pairs import NO, SHOWN, YES
from fedflat.analysis.comparison.flat.units import FITTED_UNIT, SETTING
from fedflat.analysis.measures.fitting import FITTED, is_fitted


def methods(units: pd.DataFrame, least: float = FITTED) -> pd.DataFrame:
    """One row per setting and method: `units`, how many of them are fitted, means, their deviation, and `state`.

    Fitted methods come first, the best one in front; the others are outside the ranking, and have no `rank`.
    """
    rows = []
    for key, group in units.groupby([*SETTING, "method"], sort=False):
        means = {column: group[column].mean(skipna=False) for column in SHOWN if column in group}
        rows.append(
            {
                **dict(zip([*SETTING, "method"], key, strict=True)),
                "title": group["title"].iloc[0],
                "units": len(group),
                "fitted_units": int(group[FITTED_UNIT].sum()),
                **means,
                "test_deviation": group["test_accuracy"].std(),
            }
        )
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    table["state"] = is_fitted(table["train_accuracy"], least).map({True: YES, False: NO})
    table = table.sort_values([*SETTING, "state", "test_accuracy"], ascending=[True, True, True, True, False])
    is_ranked = table["state"] == YES
    table["rank"] = table[is_ranked].groupby(SETTING).cumcount() + 1
    return table.reset_index(drop=True)
