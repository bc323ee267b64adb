"""Does flatness matter? All statistics of a table of runs, as tidy frames."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedflat.analysis.comparison.study.configurations import CONFIGURATION, Configurations
from fedflat.analysis.comparison.study.granulated import granulated
from fedflat.analysis.comparison.study.information import information
from fedflat.analysis.comparison.study.kendall import Floats
from fedflat.analysis.comparison.study.levels import Clusters, SettingSample, pooled
from fedflat.analysis.comparison.study.measures import (
    FLATNESS,
    RANDOM,
    REFERENCES,
    RESULTS,
    TRAIN_LOSS,
    fitted,
    measured,
    with_references,
)
from fedflat.bench.experiments.address import IDS
from fedflat.bench.input.errors import UserError

EVERY, FITTED = "all", "fitted"
"""Which runs: all that have values, or those of methods that fit their training data."""

POOLED = "all settings"
RANDOM_DRAWS = 20
LEAST_METHODS = 3


@dataclass(frozen=True)
class Study:
    """`runs`: the table of runs; `least`: the training accuracy in percent from which a method counts as fitted.

    Frames: `correlations` has one row per subset of runs, result, measure, setting, level, and what is given (nothing,
    or the training loss); `granulated` and `information` one per subset, result, measure and axis; `counts` one per
    setting.
    """

    source: str
    runs: pd.DataFrame
    least: float
    measures: tuple[str, ...]
    correlations: pd.DataFrame
    granulated: pd.DataFrame
    information: pd.DataFrame
    counts: pd.DataFrame

    @classmethod
    def of(cls, runs: pd.DataFrame, source: str, least: float) -> "Study":
        """The study of a table of runs, called by its `source` in messages; a `UserError` if there is too little."""
        if not 0 <= least <= 100:
            raise UserError(f"--fitted {least:g} (allowed: a training accuracy from 0 to 100 %)")
        measures = measured(runs)
        if not measures:
            raise UserError(
                f"no flatness measure of two or more methods in {source}; compute an analysis such as hessian, and for "
                "runs in the folder of results, add --runs"
            )
        methods = runs.loc[runs[measures].notna().any(axis=1), "method"].nunique()
        if methods < LEAST_METHODS:
            raise UserError(f"flatness measures of {methods} methods in {source} (allowed: at least {LEAST_METHODS})")
        frames: dict[str, list[pd.DataFrame]] = {name: [] for name in ("correlations", "granulated", "information")}
        kept = fitted(runs, least)
        for subset, rows in {EVERY: runs, FITTED: kept}.items():
            for result in RESULTS:
                chosen = with_references(rows, result)
                if chosen["method"].nunique() < LEAST_METHODS:
                    continue
                columns = [*measures, *(name for name in REFERENCES if chosen[name].notna().any())]
                for name, rows_of in _STATISTICS.items():
                    table = pd.DataFrame(list(rows_of(chosen, columns, result)))
                    table.insert(0, "runs", subset)
                    table.insert(1, "result", result)
                    frames[name].append(table)
        joined = {name: pd.concat(tables, ignore_index=True) for name, tables in frames.items()}
        return cls(source, runs, least, tuple(measures), **joined, counts=_counts(runs, kept))

    def rows(self, frame: pd.DataFrame, **values: Any) -> pd.DataFrame:
        """The rows of a frame with these values in its columns."""
        chosen = np.logical_and.reduce([frame[column] == value for column, value in values.items()])
        return frame[chosen]

    @property
    def has_fitted(self) -> bool:
        """Whether enough methods fit, and others do not."""
        return FITTED in set(self.correlations["runs"]) and bool((self.counts["fitted"] < self.counts["methods"]).any())


def _correlations(runs: pd.DataFrame, measures: list[str], result: str) -> Iterator[dict[str, Any]]:
    cluster_of, seeds = Configurations.of(runs).cluster_of, sorted(runs["seed"].unique())
    clusters = Clusters.drawn(max(cluster_of.values()) + 1, len(seeds))
    settings = {"/".join(map(str, key)): rows for key, rows in runs.groupby(IDS[:3], sort=False)}
    for measure in measures:
        for given in ("", TRAIN_LOSS) if measure in FLATNESS else ("",):
            columns = [measure, result, *([given] if given else [])]
            levels = {
                name: _sample(rows, columns, cluster_of, seeds).levels(clusters) for name, rows in settings.items()
            }
            for name, chosen in ({POOLED: list(levels.values())} | {key: [one] for key, one in levels.items()}).items():
                for level, found in pooled(chosen, clusters).items():
                    yield {"measure": measure, "setting": name, "level": level, "given": given, **vars(found)}


def _sample(rows: pd.DataFrame, columns: list[str], cluster_of: Mapping[str, int], seeds: list[int]) -> SettingSample:
    wide = rows.pivot(index=["method", "variant"], columns="seed", values=columns)
    numbers = np.array([cluster_of[method] for method in wide.index.get_level_values("method")])
    values = (wide.reindex(columns=[(column, seed) for seed in seeds]).to_numpy(float) for column in columns)
    return SettingSample(numbers, *values)


def _granulated(runs: pd.DataFrame, measures: list[str], result: str) -> Iterator[dict[str, Any]]:
    configurations = Configurations.of(runs)
    clusters = Clusters.drawn(max(configurations.clusters) + 1, 1)
    for measure in measures:
        means = _means(configurations, runs, measure, result)
        for axis, found in granulated(configurations, *means, clusters).items():
            yield {"measure": measure, "axis": axis, **vars(found)}


def _information(runs: pd.DataFrame, measures: list[str], result: str) -> Iterator[dict[str, Any]]:
    configurations = Configurations.of(runs)
    for measure in measures:
        means = _means(configurations, runs, measure, result)
        for axis, value in information(configurations, *means).items():
            yield {"measure": measure, "axis": axis, "value": value}
    draws = np.random.default_rng(0).standard_normal((RANDOM_DRAWS, len(configurations.means)))
    of_result = configurations.means[result].to_numpy(float)
    table = pd.DataFrame([information(configurations, draw, of_result) for draw in draws])
    for name, column in table.items():
        yield {"measure": RANDOM, "axis": str(name), "value": float(column.mean())}


def _means(configurations: Configurations, runs: pd.DataFrame, measure: str, result: str) -> tuple[Floats, Floats]:
    """Means of a measure and of a result over the seeds that have both."""
    index = pd.MultiIndex.from_frame(configurations.means[CONFIGURATION])
    means = runs[runs[measure].notna()].groupby(CONFIGURATION)[list({measure, result})].mean().reindex(index)
    return means[measure].to_numpy(float), means[result].to_numpy(float)


_STATISTICS: dict[str, Callable[[pd.DataFrame, list[str], str], Iterator[dict[str, Any]]]] = {
    "correlations": _correlations,
    "granulated": _granulated,
    "information": _information,
}


def _counts(runs: pd.DataFrame, kept: pd.DataFrame) -> pd.DataFrame:
    """Per setting: the numbers of methods, runs, diverged runs and fitted methods, and the range of accuracies."""
    rows = []
    for key, group in runs.groupby(IDS[:3], sort=False):
        same = kept[(kept[IDS[:3]] == list(key)).all(axis=1)]
        rows.append(
            {
                "setting": "/".join(map(str, key)),
                "methods": len(group[CONFIGURATION].drop_duplicates()),
                "runs": len(group),
                "diverged": int((group["outcome"] == "diverged").sum()),
                "fitted": len(same[CONFIGURATION].drop_duplicates()),
                **{
                    f"{name}_{end}": float(getattr(group.groupby(CONFIGURATION)[name].mean(), end)())
                    for name in ("train_accuracy", "test_accuracy")
                    for end in ("min", "max")
                },
            }
        )
    return pd.DataFrame(rows)
