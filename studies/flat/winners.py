"""The winners of searches by a protocol, from their stored trials."""

import pandas as pd

from fedflat.bench.experiments.address import IDS


def winners(trials: pd.DataFrame) -> pd.DataFrame:
    """The best trial of each search: fitted ones by validation accuracy, then the others by training accuracy.

    Of equal ones, the first. `trials` as `load_search` gives them; accuracies become numbers.
    """
    table = numeric(trials)
    score = table["validation_accuracy"].where(table["fitted"] == 1, table["train_accuracy"])
    ordered = table.assign(score=score.fillna(-1.0)).sort_values(
        ["fitted", "score", "number"], ascending=[False, False, True], kind="stable"
    )
    return ordered.groupby([*IDS, "tuning_seed"], sort=False).head(1).sort_index().drop(columns="score")


def numeric(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials with accuracies, costs and distances as numbers."""
    exact = ("train_accuracy", "validation_accuracy", "fit_mb", "distance")
    return trials.assign(**{name: pd.to_numeric(trials[name]) for name in exact})
