"""When a model has fitted its training data: a training accuracy in percent, on the labels that it was given."""

import math

import pandas as pd

FITTED = 99.0
"""The least training accuracy of a fitted model."""

ROUNDING = 1e-9
"""Means of evaluations may be below their bound by this much."""


def is_fitted(train_accuracy: pd.Series, least: float = FITTED) -> pd.Series:
    """Which runs or means have at least this training accuracy in percent; a run without one has not."""
    return train_accuracy >= least - ROUNDING


def fit_round(rounds: pd.Series, train_accuracy: pd.Series, least: float = FITTED) -> float:
    """The first evaluated round with a fitted model; NaN if there is none."""
    reached = rounds[is_fitted(train_accuracy, least)]
    return float(reached.iloc[0]) if len(reached) else math.nan
