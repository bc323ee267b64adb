"""The intervals that figures of studies draw; tests/analysis/figures tests those of the package in the same way."""

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fedflat.analysis.comparison.flat.pairs import pairs
from fedflat.analysis.comparison.flat.units import units
from fedflat.analysis.figures.base import TEXT_WIDTH
from studies.flat import figures as flat_figures
from studies.reproduction import page
from tests.analysis.comparison.flat_frames import SEEDS as TUNING_SEEDS
from tests.analysis.comparison.flat_frames import protocol
from tests.analysis.comparison.flat_frames import runs as flat_runs
from tests.analysis.figures.intervals import Code, Interval, agree, drawn, t_interval

Pair = tuple[Iterable[Interval], Iterable[Interval]]


def of_flat_pairs() -> Iterator[Pair]:
    """Of the differences of four tuning seeds, each of which is the mean of two runs."""
    made = flat_runs(seeds=TUNING_SEEDS[:4])
    means = made.pivot_table("test_accuracy", "experiment", "method")
    table = pairs(units(made), protocol())
    [figure] = flat_figures.of_pairs(table, protocol(), TEXT_WIDTH)
    expected = [(means[label] - means[base]).tolist() for label, base in (("fedsam", "fedavg"), ("fedspeed", "feddyn"))]
    yield drawn(figure.figure), map(t_interval, expected)


def of_single_runs() -> Iterator[Pair]:
    """They have no deviation."""
    rounds = np.arange(1, 51)
    run = SimpleNamespace(label="one", regular_accuracies=pd.Series(7.0, pd.Index(rounds, name="round")))
    expected = [(7.0, 7.0)] * (50 // page.EVERY)
    yield drawn(page._curves([run]).figure), expected  # type: ignore[list-item]


CASES: dict[str, Callable[[], Iterator[Pair]]] = {
    "studies.flat.figures": of_flat_pairs,
    "studies.reproduction.page": of_single_runs,
}


@pytest.mark.parametrize("module", CASES)
def test_a_figure_draws_the_intervals_of_its_values(module: str) -> None:
    for found, expected in CASES[module]():
        agree(found, expected)


def test_all_code_that_draws_intervals_belongs_to_a_figure_with_a_case() -> None:
    code = Code(analysis="fedflat.analysis", studies="studies")
    assert {module for module in code.figures if module.startswith("studies.")} == set(CASES)
    assert {module for module, _ in code.direct} <= {*code.figures, *code.used}
