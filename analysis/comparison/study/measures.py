"""The measures of a study and the results that they are compared with, as columns of a table of runs."""

import numpy as np
import pandas as pd

from fedflat.analysis.layouts.run_columns import ANALYSED, GAP, column_name
from fedflat.bench.experiments.address import IDS

RESULTS = {name: column_name(name) for name in ("test_accuracy", GAP)}
"""Columns of results, and their names."""

FLATNESS = {name: column_name(name) for name in ANALYSED}
"""Columns of values of analyses, and their names. Lower is flatter; the drift is how far perturbations miss the point
that they aim at."""

TRAIN_LOSS = "train_loss"
ORACLES = {"oracle": 0.0, "oracle_1": 1.0, "oracle_5": 5.0}
"""Columns of the result itself, with normal noise of so many points in each run."""

RANDOM = "random"
REFERENCES = {
    TRAIN_LOSS: "training loss",
    "gradients": "gradients",
    "oracle": "oracle",
    "oracle_1": "oracle, noise 1 point",
    "oracle_5": "oracle, noise 5 points",
}
"""Measures for reference: simple ones, and those that are computed from the result itself."""

NAMES = {**FLATNESS, **REFERENCES, RANDOM: "random"}


def measured(runs: pd.DataFrame) -> list[str]:
    """The flatness measures that at least two methods have."""
    return [name for name in FLATNESS if name in runs and runs.loc[runs[name].notna(), "method"].nunique() > 1]


def with_references(runs: pd.DataFrame, result: str) -> pd.DataFrame:
    """The runs that have the result, with the columns of the oracles. Their noise is the same for equal tables."""
    valued = runs[np.isfinite(runs[result].astype(float))]
    noise = np.random.default_rng(0).standard_normal(len(runs))[np.isfinite(runs[result].astype(float))]
    return valued.assign(**{name: valued[result] + points * noise for name, points in ORACLES.items()})


def fitted(runs: pd.DataFrame, least: float) -> pd.DataFrame:
    """The runs of methods that fit their training data in a setting: the mean training accuracy is at least `least` %.

    A method with a run that diverged did not fit. All seeds of a method are kept or left out, so that no choice among
    its seeds changes their order.
    """
    groups = [*IDS, "variant"]
    means = runs.groupby(groups)["train_accuracy"].transform(lambda values: values.mean(skipna=False))
    return runs[means >= least]
