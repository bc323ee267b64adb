"""How runs converge: curves over rounds, the first round that reaches a target, and final values.

All are functions of the columns of `metrics.csv`. A run that diverged or stopped at a target has no final value.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from fedflat.bench.experiments.address import IDS, RUN_IDS
from fedflat.bench.experiments.sections.stop import ROUNDING
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.methods.released import Release
from fedflat.bench.metrics.quantity import Better


class FinalValue(Frozen):
    """The rule that computes one number from a run's evaluations.

    `best` is optimistic, because it selects the evaluation by the reported number itself. `std_last_n` is the standard
    deviation of the last n evaluations with the divisor n, as in FedGF's code; NaN for fewer than two.
    """

    rule: Literal["last", "mean_last_n", "std_last_n", "best"] = Field(
        default="last", description="after the last round; mean or deviation of the last n evaluations; best evaluation"
    )
    n: int | None = Field(
        examples=[100], default=None, ge=1, description="number of evaluations, for mean_last_n and std_last_n"
    )

    @model_validator(mode="after")
    def _n_where_needed(self) -> "FinalValue":
        if (self.rule in ("mean_last_n", "std_last_n")) != (self.n is not None):
            raise UserError("the rules mean_last_n and std_last_n need n; the rules last and best do not allow n")
        return self

    @classmethod
    def named(cls, name: str) -> "FinalValue":
        """The rule with a name such as last, best or mean_last_100."""
        rule, _, number = name.partition("_last_")
        return cls(rule=f"{rule}_last_n", n=int(number)) if number else cls(rule=rule)

    @property
    def name(self) -> str:
        """The name, as `named` reads it."""
        return self.rule if self.n is None else f"{self.rule.removesuffix('_n')}_{self.n}"

    @property
    def description(self) -> str:
        """The rule in words, for captions."""
        return {
            "last": "after the last round",
            "mean_last_n": f"mean over the last {self.n} evaluations",
            "std_last_n": f"standard deviation of the last {self.n} evaluations",
            "best": "best of all evaluations (chosen on the reported data, hence optimistic)",
        }[self.rule]

    def of(self, values: pd.Series, better: Better) -> float:
        """The final value of one run's evaluations, in the order of rounds."""
        if self.rule == "best" and better == "none":
            raise UserError(
                "the rule best is not allowed here: for this metric, neither higher nor lower values are better"
            )
        reduce: dict[str, Callable[[pd.Series], float]] = {
            "last": lambda v: v.iloc[-1],
            "mean_last_n": lambda v: v.iloc[-(self.n or 0) :].mean(),
            "std_last_n": lambda v: _deviation(v.iloc[-(self.n or 0) :]),
            "best": lambda v: v.max() if better == "higher" else v.min(),
        }
        return float(reduce[self.rule](values))


def _deviation(values: pd.Series) -> float:
    return values.std(ddof=0) if len(values) > 1 else np.nan


def reported(release: Release | None) -> FinalValue:
    """The rule of a method's results: the last round; for a released variant, the rule of the released code."""
    return FinalValue() if release is None or release.report is None else FinalValue.named(release.report)


def curves(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Mean and sample standard deviation over seeds, per cell and round: columns `mean`, `std`, `seeds`.

    Only rounds in which every seed of the cell has a finite value are included, because a mean over the other seeds
    would jump where one seed ends. So a curve ends where its first seed diverged. A single seed has no `std`.
    """
    seeds = frame.groupby(IDS, sort=False)["seed"].nunique().rename("expected")
    finite = frame[np.isfinite(pd.to_numeric(frame[column]))]
    if finite.empty:
        numbers = {name: pd.Series(dtype=float) for name in ("round", "mean", "std", "seeds")}
        return pd.DataFrame({name: pd.Series(dtype=str) for name in IDS} | numbers)
    groups = finite.groupby([*IDS, "round"], sort=False)[column]
    curve = groups.agg(mean="mean", std="std", seeds="count").reset_index()
    curve = curve.merge(seeds, left_on=IDS, right_index=True)
    complete: pd.DataFrame = curve[curve["seeds"] == curve["expected"]].drop(columns="expected")
    return complete.sort_values([*IDS, "round"], ignore_index=True)


def neighbour_means(frame: pd.DataFrame, column: str, window: int = 1, every: int = 1) -> pd.DataFrame:
    """The frame, in which the column holds centred moving means over `window` evaluations of a run.

    The mean at evaluation k is over evaluations k - ⌊window/2⌋ to k + ⌈window/2⌉ - 1, as far as they exist. The result
    has only the rounds that are multiples of `every` (FedGF's Figures 4 and 8: 100 evaluations, every 800 or 1,000
    rounds). Rows without an evaluation are unchanged.
    """
    selected = frame[frame["round"] % every == 0]
    if window == 1:
        return selected
    evaluated = frame[frame[column].notna()].sort_values("round")
    runs = evaluated.groupby(RUN_IDS, sort=False)[column]
    means = runs.transform(moving_means, window)
    return selected.assign(**{column: means.reindex(selected.index)})


def moving_means(evaluations: pd.Series, window: int) -> pd.Series:
    """Centred moving means of one run's evaluations, in order; see `neighbour_means`."""
    return evaluations.rolling(window, min_periods=1, center=True).mean()


def first_reaching(evaluations: pd.Series, target: float, window: int = 1) -> int | None:
    """The first round at which the mean of the last `window` evaluations is at least the target; None if none is.

    `evaluations` are the values of one run, indexed by round, in order, without missing ones. A mean over fewer than
    `window` evaluations does not count. A mean below the target by at most `ROUNDING` counts.
    """
    if len(evaluations) < window:
        return None
    means = np.lib.stride_tricks.sliding_window_view(evaluations.to_numpy(float), window).mean(axis=1)
    reaching = np.flatnonzero(means >= target - ROUNDING)
    return int(evaluations.index[window - 1 :][reaching[0]]) if len(reaching) else None


def diverged_seeds(metrics: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: the number of `seeds`, and how many of them `diverged`."""
    runs = metrics.groupby(RUN_IDS, sort=False)["diverged"].max().reset_index()
    return runs.groupby(IDS, sort=False).agg(seeds=("seed", "count"), diverged=("diverged", "sum")).reset_index()


def stopped_runs(metrics: pd.DataFrame) -> dict[tuple[str, ...], dict[int, int]]:
    """By cell, the runs that stopped early before their last round: seed and round."""
    found: dict[tuple[str, ...], dict[int, int]] = {}
    if "stopped" in metrics:
        ends = metrics.loc[metrics["stopped"] == 1, [*IDS, "seed", "round"]]
        for *cell, seed, finished in ends.itertuples(index=False, name=None):
            found.setdefault(tuple(map(str, cell)), {})[int(seed)] = int(finished)
    return found


def incomplete_data(metrics: pd.DataFrame) -> set[tuple[str, ...]]:
    """The cells of which a run was trained on a published data set with missing images."""
    if "missing_images" not in metrics:
        return set()
    incomplete = metrics.loc[metrics["missing_images"] > 0, IDS].drop_duplicates()
    return {tuple(map(str, cell)) for cell in incomplete.itertuples(index=False, name=None)}


def final_values(
    metrics: pd.DataFrame, column: str, final: FinalValue, better: Better, share: float = 1.0
) -> pd.DataFrame:
    """One row per run: its last `round`, whether it `diverged`, and its final `value`; NaN if it diverged or stopped.

    Only evaluations in the first `share` (a fraction) of the rounds are used.
    """
    rows = []
    for ids, run in metrics.groupby(RUN_IDS, sort=False):
        ordered = run.sort_values("round")
        last, diverged = int(ordered["round"].iloc[-1]), bool(ordered["diverged"].max())
        rows.append((*ids, last, diverged, final_value(ordered, column, final, better, share)))
    return pd.DataFrame(rows, columns=[*RUN_IDS, "round", "diverged", "value"])


def final_value(run: pd.DataFrame, column: str, final: FinalValue, better: Better, share: float = 1.0) -> float:
    """The final value of one run, whose rows are in the order of rounds; see `final_values`."""
    evaluations = run.loc[run["round"] <= share * run["round"].iloc[-1], column].dropna()
    ended_early = run["diverged"].any() or ("stopped" in run and (run["stopped"] == 1).any())
    return math.nan if ended_early or evaluations.empty else final.of(evaluations, better)
