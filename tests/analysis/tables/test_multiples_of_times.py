"""Times of another machine are judged as multiples of one method's time only; those are computed from printed times."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analysis.published.numbers import PublishedNumber, published
from analysis.report.requested import RequestedExperiment
from analysis.report.tables import Tables
from analysis.tables.layout import TableLayout
from analysis.tables.reproduction import with_published
from analysis.tables.table import Entry, Table
from analysis.tables.values import Value, compared
from analysis.verdicts.margins import Margin
from bench.input.errors import UserError

TABLES = {"fedlesam": ("8", "fedavg"), "fedtoga": ("9", "fedsam")}
"""By paper: the table of seconds per round, and the method whose multiples are judged."""


def printed(paper: str) -> dict[str, float]:
    """The printed seconds by method."""
    rows = published(paper).query("table == @TABLES[@paper][0] and metric == 'wallclock_s_per_round'")
    return dict(zip(rows["method"], rows["value"], strict=True))


def judged(paper: str, seconds: Mapping[str, Sequence[float]], **changes: object) -> Table:
    """The paper's table of seconds with these seconds of runs, by method and seed."""
    requested = RequestedExperiment(paper, Path("nowhere"))
    layout = Tables(requested).layout(TABLES[paper][0])
    layout = TableLayout.parse({**layout.model_dump(), **changes})
    values = {method: [Value(seed, number) for seed, number in enumerate(of)] for method, of in seconds.items()}
    columns = [[entry(compared(column, values)[method]) for method in layout.methods] for column in layout.columns]
    table = Table("t", layout, layout.methods, (tuple(zip(*columns, strict=True)),), "By hand.")
    return with_published(table, requested.experiment, paper)


def entry(values: Sequence[Value]) -> Entry:
    numbers = [value.number for value in values]
    return Entry(math.fsum(numbers) / len(numbers), 1.0, len(numbers), by_seed=tuple(enumerate(numbers)))


def kinds(table: Table, column: int) -> list[str]:
    return [row[column].verdict.kind for row in table.published[0]]


@pytest.mark.parametrize("paper", TABLES)
def test_multiples_are_judged_and_seconds_are_not(paper: str) -> None:
    """A machine that is ten times as fast, with one method that is slower than printed."""
    reference, times = TABLES[paper][1], printed(paper)
    slow = {**times, "mofedsam": 1.5 * times["mofedsam"]}
    noise = (0.999, 1.0, 1.001)
    of_seeds = {
        method: [0.1 * second * noise[(seed + place) % 3] for seed in range(3)]
        for place, (method, second) in enumerate(slow.items())
    }
    table = judged(paper, of_seeds)
    assert set(kinds(table, 0)) == {"not judged"}
    multiples = dict(zip(table.layout.methods, (row[1] for row in table.published[0]), strict=True))
    for method, one in multiples.items():
        assert one.number is not None
        assert one.number.value == pytest.approx(times[method] / times[reference])
        expected = {reference: "not judged", "mofedsam": "differs"}.get(method, "agrees")
        assert one.verdict.kind == expected, method
    assert any("10 % for multiples of training and evaluation per round" in part for part in table.foot)
    assert any("measured on another machine" in part for part in table.foot)


SECONDS = st.lists(st.floats(0.5, 2), min_size=3, max_size=3)


@settings(max_examples=15, deadline=None)
@given(st.lists(SECONDS, min_size=8, max_size=8), st.floats(1e-3, 1e3))
@example([[1.0, 1.01, 0.99]] * 8, 0.1)
def test_a_faster_machine_changes_no_verdict(noise: list[list[float]], scale: float) -> None:
    runs = {
        method: [second * one for one in of]
        for (method, second), of in zip(printed("fedlesam").items(), noise, strict=True)
    }
    scaled = {method: [scale * second for second in seconds] for method, seconds in runs.items()}
    before, after = judged("fedlesam", runs), judged("fedlesam", scaled)
    assert kinds(before, 1) == kinds(after, 1)
    for a, b in zip(before.published[0], after.published[0], strict=True):
        if a[1].verdict.gap is not None and b[1].verdict.gap is not None:
            assert b[1].verdict.gap.value == pytest.approx(a[1].verdict.gap.value, abs=1e-9)
            assert b[1].verdict.gap.margin == a[1].verdict.gap.margin


@given(
    st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 4), st.integers(0, 4),
    st.floats(-0.5, 0.5), st.floats(-0.5, 0.5),
)  # fmt: skip
def test_the_rounding_of_both_numbers_is_within_the_margin(
    own: int, other: int, decimals: int, of_other: int, error: float, of_reference: float
) -> None:
    """Whatever the digits that print left out, the true multiple is within the rounding of the computed one."""
    a, b = 10.0**-decimals, 10.0**-of_other
    number = PublishedNumber(own * a, decimals=decimals).multiple_of(PublishedNumber(other * b, decimals=of_other), 2)
    assert number.value is not None
    assert number.decimals == 2
    true = (own + error) * a / ((other + of_reference) * b)
    margin = Margin(percent=10).width(number) - math.log(1.1)
    assert abs(math.log(true / number.value)) <= margin * (1 + 1e-9)
    in_tenths = replace(PublishedNumber(own * a * 10, decimals=decimals - 1))
    assert in_tenths.multiple_of(PublishedNumber(other * b * 10, decimals=of_other - 1), 2).half_unit == pytest.approx(
        number.half_unit
    ), "the unit of both does not matter"


def test_doubts_and_bounds_of_either_number_hold_for_the_multiple() -> None:
    certain, doubtful = PublishedNumber(3.0, 0.1), PublishedNumber(2.0, note="typo_suspected: a digit")
    bound, failed = PublishedNumber(4.0, note="censored"), PublishedNumber(None, note="failed")
    assert certain.multiple_of(doubtful, 2).doubtful
    assert doubtful.multiple_of(certain, 2).doubtful
    assert bound.multiple_of(certain, 2).censored
    assert not certain.multiple_of(certain, 2).doubtful
    assert certain.multiple_of(certain, 2).std is None, "the deviation of a multiple is not printed"
    assert failed.multiple_of(certain, 2) == PublishedNumber(None, note="failed")
    assert certain.multiple_of(PublishedNumber(0.0), 2).value is None


def test_a_reference_without_a_printed_number_is_an_error() -> None:
    times = {method: [second] * 3 for method, second in printed("fedlesam").items()}
    rows = {"fedavg": {"variant": "none"}}
    message = "column ×: table 8 prints no number of fedavg by which those of the other methods could be divided"
    with pytest.raises(UserError, match=f"^{message}$"):
        judged("fedlesam", times, rows=rows)
