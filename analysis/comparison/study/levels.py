"""Rank correlation at three levels: between methods, within methods, and over all runs of a setting.

The intervals are 95 % percentile intervals of a bootstrap. It draws whole clusters of methods, and whole seeds, which
all methods share: runs of one cluster, or with one seed, are not independent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedflat.analysis.comparison.study.kendall import Floats, partial, tau_b

BETWEEN, WITHIN, ALL = "between", "within", "all"
LEVELS = {BETWEEN: "between methods", WITHIN: "within methods", ALL: "all runs"}

RESAMPLES = 1000
LEAST_CLUSTERS = 6
"""With fewer clusters of methods, or fewer seeds where they are drawn, there is no interval."""

LEAST_SEEDS = 4
"""A method with fewer seeds has no rank correlation over its seeds."""


@dataclass(frozen=True, eq=False)
class Clusters:
    """How often each cluster of methods and each seed occurs in the bootstrap samples `[1 + samples, clusters]`.

    The first row, of ones, is the sample itself.
    """

    methods: Floats
    seeds: Floats

    @classmethod
    def drawn(cls, methods: int, seeds: int, samples: int = RESAMPLES) -> "Clusters":
        """The same draws for the same numbers. Seeds are drawn independently of clusters of methods."""
        random = np.random.default_rng(0)

        def counts(size: int) -> Floats:
            drawn = random.multinomial(size, np.full(size, 1 / size), samples)
            return np.vstack([np.ones(size), drawn])

        return cls(counts(methods), counts(seeds))


@dataclass(frozen=True, eq=False)
class SettingSample:
    """Values of one setting: `x`, `y` and `z` `[configurations, seeds]`, NaN where there is no run.

    A configuration is a method with untuned or tuned values; `methods` numbers the cluster of its method.
    """

    methods: NDArray[np.int_]
    x: Floats
    y: Floats
    z: Floats | None = None

    def levels(self, clusters: Clusters) -> "Levels":
        """τ_b of x and y, or the partial τ given z, for all bootstrap samples."""
        columns = [column for column in (self.x, self.y, self.z) if column is not None]
        known: NDArray[np.bool_] = np.asarray(np.isfinite(columns).all(axis=0))
        count = len(np.unique(self.methods[known.any(axis=1)]))
        x, y, *z = (np.where(known, column, np.nan) for column in columns)
        found = self._levels(x, y, clusters)
        if not z:
            return Levels(found, count)
        of_x, of_y = (self._levels(column, z[0], clusters) for column in (x, y))
        return Levels({level: partial(found[level], of_x[level], of_y[level]) for level in LEVELS}, count)

    def _levels(self, x: Floats, y: Floats, clusters: Clusters) -> dict[str, Floats]:
        of_method, of_seed = clusters.methods[:, self.methods], clusters.seeds
        of_run = (of_method[:, :, None] * of_seed[:, None, :]).reshape(len(of_method), -1)
        return {
            BETWEEN: tau_b(_means(x), _means(y), of_method),
            WITHIN: self._within(x, y, of_method, of_seed),
            ALL: tau_b(x.ravel(), y.ravel(), of_run),
        }

    @staticmethod
    def _within(x: Floats, y: Floats, of_method: Floats, of_seed: Floats) -> Floats:
        """The mean over configurations of τ_b over their seeds."""
        has_seeds = np.isfinite(x).sum(axis=1) >= LEAST_SEEDS
        found = tau_b(x[has_seeds], y[has_seeds], of_seed).T
        weights = np.where(np.isfinite(found), of_method[:, has_seeds], 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((np.nan_to_num(found) * weights).sum(axis=1) / weights.sum(axis=1))


def _means(values: Floats) -> Floats:
    """Means over the seeds that a configuration has; NaN if it has none."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0).sum(axis=1) / known.sum(axis=1))


@dataclass(frozen=True)
class Correlation:
    """τ with its 95 % interval, which is NaN if there are too few methods or seeds."""

    tau: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Levels:
    """By level, the τ of all bootstrap samples in one setting; `clusters`: the number of clusters that have values."""

    tau: Mapping[str, Floats]
    clusters: int


def pooled(by_setting: Sequence[Levels], clusters: Clusters) -> dict[str, Correlation]:
    """By level, the mean of the τ of several settings. Each τ compares runs of one setting only.

    Settings with fewer than `LEAST_CLUSTERS` clusters are left out, unless all have fewer: then there is no interval.
    """
    large = [one for one in by_setting if one.clusters >= LEAST_CLUSTERS]
    return {
        level: _summary(
            np.array([one.tau[level] for one in large or by_setting]), enough=_enough(level, large, clusters)
        )
        for level in LEVELS
    }


def _enough(level: str, large: Sequence[Levels], clusters: Clusters) -> bool:
    return bool(large) and (level == BETWEEN or clusters.seeds.shape[1] >= LEAST_CLUSTERS)


def _summary(found: Floats, *, enough: bool) -> Correlation:
    found = found[np.isfinite(found[:, 0])]  # the settings in which it is defined
    defined = np.isfinite(found)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(defined, found, 0).sum(axis=0) / defined.sum(axis=0)
    return with_interval(means, enough=enough)


def with_interval(values: Floats, *, enough: bool) -> Correlation:
    """The first value, and the percentiles of the others, if there are `enough` clusters."""
    drawn = values[1:][np.isfinite(values[1:])]
    low, high = np.percentile(drawn, [2.5, 97.5]) if enough and len(drawn) else (np.nan, np.nan)
    return Correlation(float(values[0]), float(low), float(high))
