"""The winners of searches by a protocol, from their stored trials."""

import pandas as pd

from fedflat.bench.experiments.address import IDS
from fedflat.bench.tuning.protocol.unit import result_of, winner_of


def winners(trials: pd.DataFrame) -> pd.DataFrame:
    """The winner of each search, whose accuracies are the means of its runs with two seeds.

    `trials` as `load_search` gives them; accuracies become numbers.
    """
    table = numeric(trials)
    found = [_winner(group) for _, group in table.groupby([*IDS, "tuning_seed"], sort=False)]
    return pd.DataFrame(found).infer_objects()


def _winner(search: pd.DataFrame) -> pd.Series:
    rows = search.astype(object).where(search.notna(), None).to_dict("records")
    won = winner_of([result_of(row) for row in rows])
    row = search[search["number"] == won.number].iloc[0].copy()
    row[["train_accuracy", "validation_accuracy", "fitted"]] = won.train_accuracy, won.validation_accuracy, won.fitted
    return row


def numeric(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials with accuracies, costs and distances as numbers."""
    exact = ("train_accuracy", "validation_accuracy", "fit_mb", "distance")
    return trials.assign(**{name: pd.to_numeric(trials[name]) for name in exact})
