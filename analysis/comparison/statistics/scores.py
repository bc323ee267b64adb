"""The values that a comparison judges: one per method, setting and seed, without gaps.

A run without a value, because it diverged or missed a target, counts as the worst of the others in its
setting, in differences, ranks and tests. Means are those of the measured runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedflat.bench.experiments.address import IDS, Setting
from fedflat.bench.metrics.quantity import Better

Floats = NDArray[np.float64]

LEAST_SEEDS = 6
"""A sign-flip test of fewer pairs cannot reach a p-value below 0.05: with fewer seeds there is no verdict."""


@dataclass(frozen=True, eq=False)
class Scores:
    """`values` and `missing` `[methods, settings, seeds]`: all methods have the same seeds in all settings.

    Where a run is missing, `values` has what it counts as.
    """

    methods: tuple[str, ...]
    settings: tuple[Setting, ...]
    seeds: tuple[int, ...]
    values: Floats
    missing: NDArray[np.bool_]
    better: Better = "higher"

    @classmethod
    def of(cls, rows: pd.DataFrame, metric: str, better: Better) -> Self:
        """The scores of runs: each method has one row per setting and seed; in each setting, a run has a value."""
        columns = [*IDS[:3], "seed"]
        wide = rows.pivot(index="method", columns=columns, values=metric)
        wide = wide.reindex(columns=pd.MultiIndex.from_frame(rows[columns].drop_duplicates()))
        settings = tuple(dict.fromkeys(Setting(*map(str, key[:3])) for key in wide.columns))
        seeds = tuple(sorted({int(key[3]) for key in wide.columns}))
        keys = [(s.dataset, s.partition, s.participation, seed) for s in settings for seed in seeds]
        methods = tuple(map(str, dict.fromkeys(rows["method"])))
        values = wide.loc[list(methods)][keys].to_numpy(dtype=float).reshape(len(methods), len(settings), len(seeds))
        missing = ~np.isfinite(values)
        worst = (np.nanmin if better == "higher" else np.nanmax)(np.where(missing, np.nan, values), axis=(0, 2))
        filled = np.where(missing, worst[None, :, None], values)
        return cls(methods, settings, seeds, filled, missing, better)

    @cached_property
    def gains(self) -> Floats:
        """The values, with their sign changed if lower ones are better: higher gains are always better."""
        return self.values if self.better == "higher" else -self.values

    @cached_property
    def measured(self) -> Floats:
        """The values of the runs that have one; NaN for the others."""
        return np.where(self.missing, np.nan, self.values)

    @cached_property
    def means(self) -> Floats:
        """Of each method, the mean over the settings of the means of its measured runs; NaN if a setting has none.

        The settings that are left would be the easier ones.
        """
        counts = (~self.missing).sum(axis=2)
        sums = np.where(self.missing, 0.0, self.values).sum(axis=2)
        return np.asarray(np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0).mean(axis=1))

    @property
    def is_judged(self) -> bool:
        """Whether there are enough seeds for a verdict."""
        return len(self.seeds) >= LEAST_SEEDS

    def place(self, method: str) -> int:
        """The number of a method."""
        return self.methods.index(method)

    def of_setting(self, setting: Setting) -> "Scores":
        """The scores in one setting. Diverged runs keep the values that they count as."""
        one = slice(self.settings.index(setting), self.settings.index(setting) + 1)
        return Scores(self.methods, (setting,), self.seeds, self.values[:, one], self.missing[:, one], self.better)

    def of_methods(self, methods: Sequence[str]) -> "Scores":
        """The scores of some methods, in this order."""
        chosen = [self.place(method) for method in methods]
        return Scores(tuple(methods), self.settings, self.seeds, self.values[chosen], self.missing[chosen], self.better)
