"""Audit of repetitions: one quantity printed with two numbers, and two quantities printed with the same numbers."""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from studies.papers.anomalies import Anomaly
from studies.papers.printed_numbers import PrintedNumber, dataset_title, method_title

QUOTES = (("fedtoga", "fedlesam"), ("fedgf", "fedsam_caldarola"))
"""Pairs of papers: the first prints numbers for settings of the second."""

DETAILS = {
    "test_accuracy", "train_accuracy", "test_accuracy_std_last100", "lambda_max", "lambda_ratio_1_5", "lpf",
    "flatness_discrepancy", "rounds_to_target",
}  # fmt: skip
"""Metrics whose values are rarely equal by chance."""

LEAST_UNIFORM = 5
"""A smaller number of methods may share a standard deviation by chance."""

K = TypeVar("K", bound=Hashable)


def quoted_otherwise(numbers: Sequence[PrintedNumber]) -> Iterator[Anomaly]:
    """Numbers that a later paper prints for a quantity and setting of an earlier paper, with another value."""
    own = [printed for printed in numbers if printed.method == printed.plain_method]
    reported: set[tuple[str, str]] = set()
    for one, other in _same(own):
        for a, b in ((one, other), (other, one)):
            said = _differing(a, b) if (a.paper, b.paper) in QUOTES else None
            # The earlier paper may print its number in several tables: only the first is reported.
            if said is not None and (a.place, said[1]) not in reported:
                reported.add((a.place, said[1]))
                yield Anomaly("quoted_changed", a.place, said[0], b.place, said[1], said[2])


def printed_twice(numbers: Sequence[PrintedNumber]) -> Iterator[Anomaly]:
    """Quantities that two tables of one paper print with different numbers."""
    for a, b in _same(numbers):
        if a.paper == b.paper and a.table != b.table and not _one_selects(a, b) and (said := _differing(a, b)):
            yield Anomaly("inside", a.place, said[0], b.place, said[1], said[2])


def better_of_two(numbers: Sequence[PrintedNumber]) -> Iterator[Anomaly]:
    """FedTOGA's Table 2 against the two runs of its Table 7: it should show the better one (its Appendix B.4)."""
    tables = grouped((printed for printed in numbers if printed.paper == "fedtoga"), lambda printed: printed.table)
    runs = grouped(tables.get("7", []), lambda printed: (printed.method, printed.setting))
    for printed in tables.get("2", []):
        both = runs.get((printed.method, printed.setting), [])
        shown = [run for run in both if run.number == printed.number]
        if both and not shown:
            what = "shows neither of the two runs"
        elif both and printed.number < max(run.number for run in both):
            what = "is to show the better run, and shows the worse"
        elif both and printed.std not in {run.std for run in shown}:
            what = "same value, another deviation"
        else:
            continue
        said = ", ".join(f"{run.shown} {run.variant}" for run in both)
        yield Anomaly("inside", printed.place, printed.shown, "fedtoga table 7, same cell", said, what)


def repeated_rows(numbers: Sequence[PrintedNumber]) -> Iterator[Anomaly]:
    """Rows of a paper with equal numbers place by place, though their methods or numbers of clients differ.

    A row is one method in one part of a table; the parts differ in their number of clients.
    """
    measured = _measured(numbers)
    parts = {
        key: sorted({printed.n_clients for printed in group}, key=lambda count: int(count or 0))
        for key, group in grouped(measured, _table_of).items()
    }
    participations = {
        key: {printed.active_clients for printed in group}
        for key, group in grouped(measured, lambda printed: (*_table_of(printed), printed.n_clients)).items()
    }

    def line(printed: PrintedNumber) -> Hashable:
        variant = ";".join(part for part in printed.own_variant.split(";") if not part.startswith("target="))
        return (printed.plain_method, printed.model, variant, parts[_table_of(printed)].index(printed.n_clients))

    def place(printed: PrintedNumber) -> Hashable:
        # A part with a single participation is compared with parts of any participation.
        several = len(participations[*_table_of(printed), printed.n_clients]) > 1
        active = printed.active_clients if several else ""
        return (
            printed.dataset,
            *printed.setting[2:4],
            active,
            printed.rounds,
            printed.metric,
            printed.options.get("target"),
        )

    return _repeats(measured, line, place, _row)


def repeated_columns(numbers: Sequence[PrintedNumber]) -> Iterator[Anomaly]:
    """Columns of a paper with equal numbers method by method, though their settings differ."""
    return _repeats(
        _measured(numbers),
        line=lambda printed: (printed.metric, printed.setting, printed.rounds, printed.own_variant),
        place=lambda printed: printed.plain_method,
        name_of=lambda column: f"{column[0].paper} table {column[0].table}, {column[0].where}",
    )


def uniform_deviations(numbers: Sequence[PrintedNumber]) -> Iterator[Anomaly]:
    """Columns in which nearly all methods have the same standard deviation."""
    for column, count in _uniform(numbers):
        first = next(printed for printed in column if printed.std == _usual(column))
        others = f"{first.paper} table {first.table}, same column, {count - 1} other methods"
        what = f"one deviation for {count} of {len(column)} methods"
        yield Anomaly("repeated", first.place, f"± {first.std}", others, f"± {first.std}", what)


def _uniform(numbers: Sequence[PrintedNumber]) -> Iterator[tuple[list[PrintedNumber], int]]:
    """Columns with uniform deviations, and how many of their numbers have the most frequent deviation."""
    spread = [printed for printed in numbers if printed.std]
    columns = grouped(
        spread, lambda printed: (printed.paper, printed.table, printed.metric, printed.setting, printed.variant)
    )
    for column in columns.values():
        count = sum(printed.std == _usual(column) for printed in column)
        if count >= LEAST_UNIFORM and 4 * count >= 3 * len(column):
            yield column, count


def _usual(column: Sequence[PrintedNumber]) -> str:
    return statistics.mode(printed.std for printed in column)


def grouped(numbers: Iterable[PrintedNumber], key: Callable[[PrintedNumber], K]) -> dict[K, list[PrintedNumber]]:
    """The numbers by a key, in their order."""
    groups: dict[K, list[PrintedNumber]] = defaultdict(list)
    for printed in numbers:
        groups[key(printed)].append(printed)
    return dict(groups)


def _measured(numbers: Sequence[PrintedNumber]) -> list[PrintedNumber]:
    """The numbers that are rarely equal by chance, without the deviations that `uniform_deviations` reports."""
    uniform = {printed for column, _ in _uniform(numbers) for printed in column}
    return [
        replace(printed, std="") if printed in uniform else printed
        for printed in numbers
        if printed.metric in DETAILS and not {"chance_level", "censored"} & set(printed.kinds)
    ]


def _table_of(printed: PrintedNumber) -> tuple[str, str, str]:
    return (printed.paper, printed.table, printed.dataset)


def _same(numbers: Sequence[PrintedNumber]) -> Iterator[tuple[PrintedNumber, PrintedNumber]]:
    """All pairs of the same quantity in the same setting, whose values should be equal."""
    for group in grouped(numbers, lambda printed: printed.quantity).values():
        yield from ((a, b) for a, b in itertools.combinations(group, 2) if a.same_as(b))


def _one_selects(a: PrintedNumber, b: PrintedNumber) -> bool:
    """Whether one of the two tables selects from the numbers of the other."""
    return {(printed.paper, printed.table) for printed in (a, b)} == {("fedtoga", "2"), ("fedtoga", "7")}


def _differing(a: PrintedNumber, b: PrintedNumber) -> tuple[str, str, str] | None:
    """The texts of both numbers and how they differ; None if they are equal."""
    if a.number != b.number:
        return a.value, b.value, f"another number ({a.number - b.number:+.{_decimals(a, b)}f})"
    if a.std and b.std and float(a.std) != float(b.std):
        return a.shown, b.shown, "same value, another deviation"
    return None


def _decimals(a: PrintedNumber, b: PrintedNumber) -> int:
    return max(len(printed.value.partition(".")[2]) for printed in (a, b))


def _repeats(
    numbers: Sequence[PrintedNumber],
    line: Callable[[PrintedNumber], Hashable],
    place: Callable[[PrintedNumber], Hashable],
    name_of: Callable[[Sequence[PrintedNumber]], str],
) -> Iterator[Anomaly]:
    """Pairs of different lines (rows or columns) of one paper in which more numbers are equal than chance explains."""
    lines = grouped(numbers, lambda printed: (printed.paper, printed.table, line(printed)))
    reported: set[frozenset[tuple[str, Hashable]]] = set()
    for ((paper_a, _, a), first), ((paper_b, _, b), second) in itertools.combinations(lines.items(), 2):
        pair = frozenset([(paper_a, a), (paper_b, b)])
        if paper_a != paper_b or a == b or pair in reported or _one_selects(first[0], second[0]):
            continue
        by_place = {place(printed): printed for printed in second}
        shared = [(printed, by_place[place(printed)]) for printed in first if place(printed) in by_place]
        values = [x.value for x, y in shared if x.number == y.number]
        spreads = [f"± {x.std}" for x, y in shared if x.std and x.std == y.std]
        with_spread = sum(bool(x.std and y.std) for x, y in shared)
        if _beyond_chance(len(values), len(spreads), len(shared), with_spread):
            reported.add(pair)
            equal = " ".join([*values, *spreads])
            line_a, line_b = zip(*shared, strict=True)
            counts = {"values": (len(values), len(shared)), "deviations": (len(spreads), with_spread)}
            what = " and ".join(f"{count} of {most} {kind}" for kind, (count, most) in counts.items() if count)
            what += " are equal, place by place"
            yield Anomaly("repeated", name_of(line_a), equal, name_of(line_b), equal, what)


def _beyond_chance(values: int, spreads: int, most_values: int, most_spreads: int) -> bool:
    """Whether more numbers are equal than chance explains.

    That is: at least three values, and half of all values; or at least four deviations, and three quarters of all
    deviations; or at least four numbers of both kinds, and three quarters of all. Deviations have few digits, so some
    of them are equal by chance.
    """
    both, most = values + spreads, most_values + most_spreads
    return (
        (values >= 3 and 2 * values >= most_values)
        or (spreads >= 4 and 4 * spreads >= 3 * most_spreads)
        or (spreads > 0 and both >= 4 and 4 * both >= 3 * most)
    )


def _row(numbers: Sequence[PrintedNumber]) -> str:
    """The name of a row in reports, from those of its numbers that are compared."""
    first, counts = numbers[0], dict.fromkeys(printed.n_clients for printed in numbers)
    datasets = dict.fromkeys(dataset_title(printed.dataset) for printed in numbers)
    clients = f"{' or '.join(counts)} clients" if any(counts) else ""
    variant = first.own_variant if "target" not in first.own_variant else ""
    titles = [f"{first.paper} table {first.table}", " and ".join(datasets), clients, variant]
    return ", ".join(filter(None, [*titles, method_title(first.plain_method)]))
