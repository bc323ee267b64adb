"""Accuracies of kept runs next to the printed ones: their errors, and the classes of the active clients."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from studies.reproduction.kept_results import kept
from studies.reproduction.page import EXPERIMENT
from studies.reproduction.printed_runs import PrintedRun, by_classes, differences, printed_runs, standard_error


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


def test_only_runs_of_the_same_seed_are_compared() -> None:
    """Runs of other seeds have other active clients."""

    def one(method: str, printed: float, seed: int) -> PrintedRun:
        frame = pd.DataFrame({"round": range(1, 101), "test_accuracy": printed + seed})
        run: Any = SimpleNamespace(config=SimpleNamespace(seed=seed), metrics=lambda: frame)
        return PrintedRun(method, f"{method} {seed}", printed, 1.0, run)

    found = [one(method, printed, seed) for method, printed in (("b", 70.0), ("a", 60.0)) for seed in (1, 0)]
    assert list(differences(found).frame["methods"]) == ["b 0 − a 0", "b 1 − a 1"]


def test_the_rise_is_that_of_regular_evaluations() -> None:
    """Each of the last 100 rounds is evaluated, but only every tenth is compared with the 1,000 rounds before."""
    [fedsmoo] = [one for one in printed_runs(kept(EXPERIMENT)) if one.method == "fedsmoo"]
    metrics = fedsmoo.run.metrics().set_index("round")["test_accuracy"]
    before, last = (metrics.loc[list(range(start, start + 1000, 10))].mean() for start in (8010, 9010))
    assert f": {before:.1f} % in rounds 8,010 to 9,000, {last:.1f} % in rounds 9,010 to 10,000." in fedsmoo.gap


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
