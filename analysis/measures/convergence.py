"""How runs converge: curves, smoothed and over seeds, the first round at a target, and final values under a rule.

Functions of the columns of `metrics.csv` that return tidy frames. A run that diverged has no final value.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from bench.experiments.address import IDS, RUN_IDS
from bench.input.errors import UserError
from bench.input.frozen import Frozen
from bench.methods.released import Release

Better = Literal["higher", "lower", "none"]
"""Which direction of a quantity is better."""


class FinalValue(Frozen):
    """How one number is made of a run's evaluations. `best` chooses on what it reports: never the default.

    `std_last_n` is the sample standard deviation of the last ones, NaN of fewer than two.
    """

    rule: Literal["last", "mean_last_n", "std_last_n", "best"] = "last"
    n: int | None = Field(default=None, ge=1, description="evaluations to take, for mean_last_n and std_last_n")

    @model_validator(mode="after")
    def _n_where_needed(self) -> "FinalValue":
        if (self.rule in ("mean_last_n", "std_last_n")) != (self.n is not None):
            raise UserError("n goes with the rules mean_last_n and std_last_n, and only with them")
        return self

    @classmethod
    def named(cls, name: str) -> "FinalValue":
        """Of a name such as last, best or mean_last_100."""
        rule, _, number = name.partition("_last_")
        return cls(rule=f"{rule}_last_n", n=int(number)) if number else cls(rule=rule)

    @property
    def description(self) -> str:
        """For captions."""
        return {
            "last": "after the last round",
            "mean_last_n": f"mean over the last {self.n} evaluations",
            "std_last_n": f"sample standard deviation of the last {self.n} evaluations",
            "best": "best of all evaluations (chosen on the reported data, hence optimistic)",
        }[self.rule]

    def of(self, values: pd.Series, better: Better) -> float:
        """The final value of one run's evaluations, in the order of rounds."""
        if self.rule == "best" and better == "none":
            raise UserError("the rule best needs a metric with a better direction")
        reduce: dict[str, Callable[[pd.Series], float]] = {
            "last": lambda v: v.iloc[-1],
            "mean_last_n": lambda v: v.iloc[-(self.n or 0) :].mean(),
            "std_last_n": lambda v: v.iloc[-(self.n or 0) :].std(),
            "best": lambda v: v.max() if better == "higher" else v.min(),
        }
        return float(reduce[self.rule](values))


def reported(release: Release | None) -> FinalValue:
    """What a method reports: published ones the last round, released ones what their code does."""
    return FinalValue() if release is None or release.report is None else FinalValue.named(release.report)


def curves(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Mean and sample standard deviation over seeds, per cell and round: columns `mean`, `std`, `seeds`.

    Only rounds in which every seed of the cell has a finite value are kept: a mean over the seeds that are
    left would jump where one ends. So a curve ends where its first seed diverged. One seed has no `std`.
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
    """The frame with each run's evaluations of the column replaced by the mean of `window` neighbouring ones.

    At evaluation k these are k - ⌊window/2⌋ to k + ⌈window/2⌉ - 1, of those that there are; then only the rounds that
    `every` divides are left (FedGF's Figures 4 and 8: 100 evaluations, every 800 or 1,000 rounds). Rows without an
    evaluation stay as they are.
    """
    kept = frame[frame["round"] % every == 0]
    if window == 1:
        return kept
    evaluated = frame[frame[column].notna()].sort_values("round")
    runs = evaluated.groupby(RUN_IDS, sort=False)[column]
    means = runs.transform(lambda run: run.rolling(window, min_periods=1, center=True).mean())
    return kept.assign(**{column: means.reindex(kept.index)})


def first_reaching(evaluations: pd.Series, target: float, window: int = 1) -> int | None:
    """The first round at which the mean of the last `window` evaluations is at least the target; None: never.

    `evaluations` are one run's values by round, in order, none missing; a mean over fewer than `window` does not count.
    Values that fall short by 1e-9 reach it: that much is rounding.
    """
    if len(evaluations) < window:
        return None
    means = np.lib.stride_tricks.sliding_window_view(evaluations.to_numpy(float), window).mean(axis=1)
    reaching = np.flatnonzero(means >= target - 1e-9)
    return int(evaluations.index[window - 1 :][reaching[0]]) if len(reaching) else None


def diverged_seeds(metrics: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: `seeds` that ran, and how many of them `diverged`."""
    runs = metrics.groupby(RUN_IDS, sort=False)["diverged"].max().reset_index()
    return runs.groupby(IDS, sort=False).agg(seeds=("seed", "count"), diverged=("diverged", "sum")).reset_index()


def final_values(
    metrics: pd.DataFrame, column: str, final: FinalValue, better: Better, share: float = 1.0
) -> pd.DataFrame:
    """One row per run: its last `round`, whether it `diverged`, and else its `value` under the rule.

    `share`: evaluations of so much of the rounds are taken.
    """
    rows = []
    for key, run in metrics.groupby(RUN_IDS, sort=False):
        ordered = run.sort_values("round")
        last = int(ordered["round"].iloc[-1])
        evaluations = ordered.loc[ordered["round"] <= share * last, column].dropna()
        diverged = bool(ordered["diverged"].max())
        value = float("nan") if diverged or evaluations.empty else final.of(evaluations, better)
        rows.append((*key, last, diverged, value))
    return pd.DataFrame(rows, columns=[*RUN_IDS, "round", "diverged", "value"])
