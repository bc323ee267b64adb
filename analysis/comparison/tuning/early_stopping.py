"""What early stopping costs: the trial that a search with early stopping chose, among all trials trained to the end.

Trials of both searches have the same numbers, values and seed. So the tuned runs tell which trial was chosen, and a
search without early stopping what it and all others reach.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedflat.analysis.comparison.run_table import TUNED
from fedflat.analysis.comparison.tuning.search_budgets import budget_of
from fedflat.bench.experiments.address import IDS
from fedflat.bench.input.errors import UserError
from fedflat.bench.tuning.ranges import value_at


@dataclass(frozen=True)
class EarlyStopping:
    """`table`: one row per cell, those that lost most first: the `chosen` trial, its `score`, its `rank` among the
    trials (1: best), the `best` score, and `lost`, the difference in points; all scores are those after all rounds.

    `skipped`: how many cells are left out, because the values of the tuned runs are those of no trial.
    """

    table: pd.DataFrame
    trials: int
    skipped: int

    @classmethod
    def of(cls, runs: pd.DataFrame, trials: pd.DataFrame) -> "EarlyStopping":
        """The comparison of runs, as `run_table` has them, with trials as `collect` gives them.

        A `UserError` if no cell has both tuned runs of a search with early stopping, and trials with the same budget.
        """
        tuned = runs[runs["variant"] == TUNED].drop_duplicates(IDS)
        of_cell = {tuple(row[column] for column in IDS): row for row in tuned.to_dict("records")}
        rows, skipped = [], 0
        for cell, own in trials.groupby(IDS, sort=False):
            run = of_cell.get(tuple(map(str, cell)))
            if run is None or not _is_same_but_stopped(run, own):
                continue
            chosen = _trial_of(run, own)
            if chosen is None:
                skipped += 1
                continue
            score, best = float(chosen["score"]), float(own["score"].max())
            found = {"chosen": chosen["trial"], "score": score, "best": best, "lost": best - score}
            rank = 1 + int((own["score"] > score).sum())
            rows.append({**dict(zip(IDS, cell, strict=True)), "title": chosen["title"], **found, "rank": rank})
        if not rows:
            raise UserError("no tuned runs are of a search with early stopping and otherwise the budget of the trials")
        table = pd.DataFrame(rows).sort_values("lost", ascending=False, kind="stable", ignore_index=True)
        return cls(table, int(trials.groupby(IDS).size().max()), skipped)


def _is_same_but_stopped(run: Mapping[Any, Any], trials: pd.DataFrame) -> bool:
    """Whether the search of a tuned run stopped trials early, and had the budget of these trials otherwise."""
    budget, first = budget_of(run), trials.iloc[0]
    there = (len(trials), first["seed"], first["validation"], first["scored"], first["rounds"])
    here = (budget["trials"], *map(budget.get, ("seed", "validation", "judged")), run["rounds"])
    return bool(budget.get("rungs")) and here == there


def _trial_of(run: Mapping[Any, Any], trials: pd.DataFrame) -> Mapping[Any, Any] | None:
    """The first trial with the values of a tuned run that has not failed; None if there is none."""
    used = {section: json.loads(str(run[section])) for section in ("training", "hyperparameters")}
    for trial in trials.sort_values("trial").to_dict("records"):
        values = json.loads(trial["values"]).items()
        if pd.notna(trial["score"]) and all(value_at(place, used) == value for place, value in values):
            return trial
    return None
