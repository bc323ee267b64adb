"""Which methods and pairs are judged: those whose models fit their training data.

A method is fitted if the mean training accuracy of its units is high enough. A pair of methods counts if both are
fitted, or if their training accuracies differ by at most a point: then neither is further trained than the other.
"""

import pandas as pd

from fedflat.analysis.comparison.flat.regime import SETTING
from fedflat.analysis.comparison.flat.units import FITTED_UNIT
from fedflat.analysis.measures.fitting import FITTED, ROUNDING, is_fitted

YES, CLOSE, NO = "fitted", "within a point", "not fitted"

SHOWN = ["train_accuracy", "validation_accuracy", "test_accuracy", "generalisation_gap", "lambda_max"]
"""The columns whose means are shown side by side."""


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


def state_of_pair(train: float, train_base: float, least: float = FITTED, within: float = 1.0) -> str:
    """Whether a pair counts, by the mean training accuracies of the method and its base in percent."""
    if min(train, train_base) >= least - ROUNDING:
        return YES
    return CLOSE if abs(train - train_base) <= within + ROUNDING else NO
