"""What a search has cost: trials, gradients and hours of each method."""

import pandas as pd

from fedflat.analysis.comparison.flat.units import SETTING
from fedflat.bench.tuning.protocol.schema import Protocol
from studies.flat.winners import numeric

TAKEN = "taken"
"""The outcome of a trial of the base that a method takes."""


def effort(trials: pd.DataFrame, protocol: Protocol) -> pd.DataFrame:
    """One row per setting and method: tuning seeds, and means over them.

    `trained`: the method's own trials; `shared`: those of its base before the best of them are taken, of which a base
    has none; `gradients` of mini-batches and processor `hours` of its own trials; `fitted`: the share of these that
    fits.
    """
    rows = []
    own = numeric(trials[trials["outcome"] != TAKEN])
    for key, group in own.groupby([*SETTING, "method"], sort=False):
        method, seeds = str(key[-1]), group["tuning_seed"].nunique()
        is_base = method in protocol.bases
        rows.append(
            {
                **dict(zip([*SETTING, "method"], key, strict=True)),
                "seeds": seeds,
                "trained": len(group) / seeds,
                "shared": 0 if is_base else protocol.trials.shared,
                "failed": int(group["train_accuracy"].isna().sum()),
                "fitted": float(group["fitted"].mean()),
                "gradients": float(group["gradients"].sum()) / seeds,
                "hours": float(group["cpu_seconds"].sum()) / 3600 / seeds,
            }
        )
    return pd.DataFrame(rows)
