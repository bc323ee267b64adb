"""Times of another machine are judged as multiples of one method's time only; those are computed from printed times."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.published.numbers import PublishedNumber, published
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.analysis.tables.formats import FORMATS
from fedflat.analysis.tables.layout import TableLayout
from fedflat.analysis.tables.reproduction import with_published
from fedflat.analysis.tables.table import Entry, PublishedEntry, Table
from fedflat.analysis.tables.values import Value, compared
from fedflat.analysis.verdicts.margins import Margin
from fedflat.bench.input.errors import UserError

TABLES = {"fedlesam": "8", "fedtoga": "9"}
"""By paper: the table of seconds per round."""


def printed(paper: str) -> dict[str, float]:
    """The printed seconds by method."""
    rows = published(paper).query("table == @TABLES[@paper] and metric == 'wallclock_s_per_round'")
    return dict(zip(rows["method"], rows["value"], strict=True))


def judged(paper: str, seconds: Mapping[str, Sequence[float]], name: str | None = None, **changes: object) -> Table:
    """The paper's table of seconds, or the named one, with these values of runs in each column, by method and seed."""
    requested = RequestedExperiment(paper, Path("nowhere"))
    layout = Tables(requested).layout(name or TABLES[paper])
    layout = TableLayout.parse({**layout.model_dump(), **changes})
    values = {method: [Value(seed, number) for seed, number in enumerate(of)] for method, of in seconds.items()}
    columns = [[entry(compared(column, values)[method]) for method in layout.methods] for column in layout.columns]
    table = Table("t", layout, layout.methods, (tuple(zip(*columns, strict=True)),), lambda: Caption("T", "By hand."))
    return with_published(table, requested.experiment, paper)


def entry(values: Sequence[Value]) -> Entry:
    numbers = [value.number for value in values]
    return Entry(math.fsum(numbers) / len(numbers), 1.0, len(numbers), by_seed=tuple(enumerate(numbers)))


def kinds(table: Table, column: int) -> list[str]:
    return [row[column].verdict.kind for row in table.published[0]]


def test_multiples_are_judged_and_seconds_are_not() -> None:
    """A machine that is ten times as fast, with one method that is slower than printed."""
    times = printed("fedlesam")
    slow = {**times, "mofedsam": 1.5 * times["mofedsam"]}
    noise = (0.999, 1.0, 1.001)
    of_seeds = {
        method: [0.1 * second * noise[(seed + place) % 3] for seed in range(3)]
        for place, (method, second) in enumerate(slow.items())
    }
    table = judged("fedlesam", of_seeds)
    assert set(kinds(table, 0)) == {"not judged"}
    multiples = dict(zip(table.layout.methods, (row[1] for row in table.published[0]), strict=True))
    for method, one in multiples.items():
        assert one.number is not None
        assert one.number.value == pytest.approx(times[method] / times["fedavg"])
        expected = {"fedavg": "not judged", "mofedsam": "differs"}.get(method, "agrees")
        assert one.verdict.kind == expected, method
    assert any("10 % for multiples of training and evaluation per round" in part for part in table.foot)
    assert any(
        "multiples of printed times: plus half a unit of the last decimal of both times" in part for part in table.foot
    )
    assert any("measured on another machine" in part for part in table.foot)


def pairs(table: Table) -> list[set[frozenset[str]] | None]:
    """The compared pairs of methods, by column."""
    orders = (summary.order for summary in table.summaries[0])
    return [None if order is None else {frozenset(pair[:2]) for pair in order.pairs} for order in orders]


def all_pairs(methods: Iterable[str]) -> set[frozenset[str]]:
    return {frozenset(pair) for pair in itertools.combinations(methods, 2)}


def test_times_of_two_machines_are_not_compared() -> None:
    """FedTOGA's Table 9: quoted times are of FedLESAM's machine, the other two of its own; no multiple is shown."""
    times, theirs = printed("fedtoga"), printed("fedlesam")
    table = judged("fedtoga", {method: [second] * 3 for method, second in times.items()})
    quoted = {method for method, row in zip(table.layout.methods, table.published[0], strict=True) if is_quoted(row[0])}
    assert quoted == {method for method in times if times[method] == theirs.get(method)}
    assert len(quoted) == 5
    assert all(entry.verdict.kind == "not judged" for row in table.published[0] for entry in row)
    assert [column.relative_to for column in table.layout.columns] == [None]
    assert pairs(table) == [all_pairs(quoted) | all_pairs(times.keys() - quoted)]
    text = FORMATS["md"](table)
    assert "q quoted from FedLESAM table 8." in text
    assert "Quoted numbers are compared with quoted ones only, because the papers' settings differ." in text


def is_quoted(entry: PublishedEntry) -> bool:
    return entry.number is not None and entry.number.quoted


def test_pairs_of_a_column_and_its_multiples_are_counted_once() -> None:
    """Multiples have the order of the values. They count where more of them are printed."""
    seconds = {method: [second] * 3 for method, second in printed("fedlesam").items()}
    table = judged("fedlesam", seconds)
    assert pairs(table) == [all_pairs(seconds), None]
    assert table.foot[0].startswith("Order of the methods: of 28 pairs of methods")
    five = judged("fedlesam", seconds, "5")
    only_multiples = [printed_of == "1" for printed_of in ("values", "1") * 6]
    assert [one is not None for one in pairs(five)] == only_multiples, "FedAvg alone has printed values"
    nine = judged("fedlesam", seconds, "9")
    assert [one is not None for one in pairs(nine)] == [True, False, True, False, *only_multiples[4:]]


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
    message = "column × FedAvg: table 8 prints no number of fedavg by which those of the other methods could be divided"
    with pytest.raises(UserError, match=f"^{message}$"):
        judged("fedlesam", times, rows=rows)
