"""In which regime runs are: do they fit their training data, and do their results follow the training accuracy?

Where no run fits its data, test accuracies rank the speed of optimisation, and not how fitted models generalise.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd

from fedflat.analysis.comparison.flat.units import SETTING
from fedflat.analysis.measures.fitting import is_fitted

NEARLY = 90.0
"""A training accuracy for comparison with `FITTED`: the one of `fedflat study`."""


@dataclass(frozen=True)
class Regime:
    """`cells`: one row per variant, setting and method, with means over its runs. A cell with a run without a value,
    because it diverged, has no mean."""

    cells: pd.DataFrame

    @classmethod
    def of(cls, runs: pd.DataFrame) -> Self:
        """The regime of runs, as `run_table` has them."""
        groups = runs.groupby(["variant", *SETTING, "method"], sort=False)
        means = groups[["train_accuracy", "test_accuracy"]].mean(skipna=False).reset_index()
        return cls(means.assign(gap=means["train_accuracy"] - means["test_accuracy"]))

    @cached_property
    def settings(self) -> pd.DataFrame:
        """One row per variant and setting: how many methods, what follows from the training accuracy, and spreads."""
        rows = []
        for key, cells in self.cells.groupby(["variant", *SETTING], sort=False):
            valued = cells.dropna()
            train, test = valued["train_accuracy"], valued["test_accuracy"]
            rows.append(
                {
                    **dict(zip(["variant", *SETTING], key, strict=True)),
                    "methods": len(cells),
                    "r2": r2(train, test),
                    "test_deviation": test.std(),
                    "gap_deviation": valued["gap"].std(),
                    "train_low": train.min(),
                    "train_high": train.max(),
                    "nearly": int(is_fitted(train, NEARLY).sum()),
                    "fitted": int(is_fitted(train).sum()),
                }
            )
        return pd.DataFrame(rows)

    def deviations(self, variant: str) -> tuple[float, float]:
        """The standard deviations of test accuracies and of gaps over methods, of their means over the settings."""
        cells = self.cells[self.cells["variant"] == variant]
        means = cells.groupby("method")[["test_accuracy", "gap"]].mean(skipna=False)
        test, gap = means.std()
        return float(test), float(gap)


def r2(one: pd.Series, other: pd.Series) -> float:
    """R² of a linear regression of one column on another; NaN with fewer than three values, or without a spread."""
    if len(one) < 3 or one.std() == 0 or other.std() == 0:
        return float("nan")
    return float(np.corrcoef(one, other)[0, 1] ** 2)
