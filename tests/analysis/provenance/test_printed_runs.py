"""Accuracies of kept runs next to the printed ones: their errors, and the classes of the active clients."""

import numpy as np
import pandas as pd
import pytest

from analysis.provenance.kept_results import kept
from analysis.provenance.printed_runs import by_classes, differences, printed_runs, standard_error
from analysis.provenance.reproduction_page import EXPERIMENT


def test_the_standard_error_is_that_of_independent_batches() -> None:
    """Of numbers that are equal within a batch, the batches are the sample."""
    means = np.random.default_rng(0).normal(size=10)
    accuracies = pd.Series([0.0, *np.repeat(means, 10)])
    assert standard_error(accuracies) == pytest.approx(means.std(ddof=1) / 10**0.5)


def test_differences_are_those_of_the_same_rounds() -> None:
    found = printed_runs(kept(EXPERIMENT))
    table = differences(found).frame.set_index("methods")
    fedavg, fedsam = (next(one for one in found if one.method == name) for name in ("fedavg", "fedsam"))
    last = (fedsam.accuracies - fedavg.accuracies).iloc[-100:]
    row = table.loc["FedSAM − FedAvg"]
    assert row["measured"] == pytest.approx(last.mean())
    assert row["printed"] == pytest.approx(68.11 - 63.63)
    assert row["error"] < np.hypot(standard_error(fedsam.accuracies), standard_error(fedavg.accuracies)), "paired"


def test_classes_are_those_of_the_active_clients() -> None:
    """Each client has one class, so a class is absent from a round with the probability C(90, 5) / C(100, 5)."""
    found = printed_runs(kept(EXPERIMENT))
    classes = found[0].classes()
    assert set(classes) <= set(range(1, 6))
    absent = np.prod([(90 - k) / (100 - k) for k in range(5)])
    assert classes.mean() == pytest.approx(10 * (1 - absent), abs=0.02)
    last = found[0].accuracies.iloc[-100:]
    assert classes.loc[last.index].corr(last) > 0.6, "the clients of this round, not of its neighbour"
    frame = by_classes(found).frame
    line = np.polyfit(classes.iloc[-100:], last, 1)
    assert frame["accuracy expected with these"][0] == pytest.approx(np.polyval(line, classes.mean()))
