"""Computed part of the audit: one quantity with two numbers, and two quantities with the same numbers."""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from analysis.published.anomalies import Anomaly
from analysis.published.printed_cells import Cell, dataset_title, method_title

QUOTES = (("fedtoga", "fedlesam"), ("fedgf", "fedsam_caldarola"))
"""Pairs of papers; the first has numbers for settings of the second."""

MEASURED = {
    "test_accuracy", "train_accuracy", "test_accuracy_std_last100", "lambda_max", "lambda_ratio_1_5", "lpf",
    "flatness_discrepancy", "rounds_to_target",
}  # fmt: skip
"""What is equal by rare chance only."""

LEAST_UNIFORM = 5
"""So many methods with one deviation are no chance."""

K = TypeVar("K", bound=Hashable)


def quoted_otherwise(cells: Sequence[Cell]) -> Iterator[Anomaly]:
    """Numbers that a later paper has for a quantity and setting of an earlier one, and otherwise."""
    own = [cell for cell in cells if cell.method == cell.plain_method]
    told: set[tuple[str, str]] = set()
    for one, other in _same(own):
        for a, b in ((one, other), (other, one)):
            said = _differing(a, b) if (a.paper, b.paper) in QUOTES else None
            # The earlier paper may repeat its number in several tables: the first is named.
            if said is not None and (a.place, said[1]) not in told:
                told.add((a.place, said[1]))
                yield Anomaly("quoted_changed", a.place, said[0], b.place, said[1], said[2])


def printed_twice(cells: Sequence[Cell]) -> Iterator[Anomaly]:
    """Quantities that two tables of one paper print, with different numbers."""
    for a, b in _same(cells):
        if a.paper == b.paper and a.table != b.table and not _chosen(a, b) and (said := _differing(a, b)):
            yield Anomaly("inside", a.place, said[0], b.place, said[1], said[2])


def better_of_two(cells: Sequence[Cell]) -> Iterator[Anomaly]:
    """FedTOGA's Table 2 against the two runs of Table 7, of which it is to hold the better one (its Appendix B.4)."""
    tables = grouped((cell for cell in cells if cell.paper == "fedtoga"), lambda cell: cell.table)
    runs = grouped(tables.get("7", []), lambda cell: (cell.method, cell.setting))
    for cell in tables.get("2", []):
        both = runs.get((cell.method, cell.setting), [])
        shown = [run for run in both if run.number == cell.number]
        if both and not shown:
            what = "shows neither of the two runs"
        elif both and cell.number < max(run.number for run in both):
            what = "is to show the better run, and shows the worse"
        elif both and cell.std not in {run.std for run in shown}:
            what = "same value, another deviation"
        else:
            continue
        said = ", ".join(f"{run.shown} {run.variant}" for run in both)
        yield Anomaly("inside", cell.place, cell.shown, "fedtoga table 7, same cell", said, what)


def repeated_rows(cells: Sequence[Cell]) -> Iterator[Anomaly]:
    """Rows of a paper that share numbers place by place, though they are of different methods or numbers of clients.

    A row is a method in one part of a table; parts have different numbers of clients.
    """
    measured = _measured(cells)
    parts = {
        key: sorted({cell.n_clients for cell in group}, key=lambda count: int(count or 0))
        for key, group in grouped(measured, _table_of).items()
    }
    participations = {
        key: {cell.active_clients for cell in group}
        for key, group in grouped(measured, lambda cell: (*_table_of(cell), cell.n_clients)).items()
    }

    def line(cell: Cell) -> Hashable:
        variant = ";".join(part for part in cell.own_variant.split(";") if not part.startswith("target="))
        return (cell.plain_method, cell.model, variant, parts[_table_of(cell)].index(cell.n_clients))

    def place(cell: Cell) -> Hashable:
        # Where a part has one participation only, that of another part may be another one.
        several = len(participations[*_table_of(cell), cell.n_clients]) > 1
        active = cell.active_clients if several else ""
        return (cell.dataset, *cell.setting[2:4], active, cell.rounds, cell.metric, cell.options.get("target"))

    return _repeats(measured, line, place, _row)


def repeated_columns(cells: Sequence[Cell]) -> Iterator[Anomaly]:
    """Columns of a paper that share numbers method by method, though they are of different settings."""
    return _repeats(
        _measured(cells),
        line=lambda cell: (cell.metric, cell.setting, cell.rounds, cell.own_variant),
        place=lambda cell: cell.plain_method,
        called=lambda column: f"{column[0].paper} table {column[0].table}, {column[0].where}",
    )


def uniform_deviations(cells: Sequence[Cell]) -> Iterator[Anomaly]:
    """Columns in which nearly all methods have one deviation."""
    for column, count in _uniform(cells):
        first = next(cell for cell in column if cell.std == _usual(column))
        others = f"{first.paper} table {first.table}, same column, {count - 1} other methods"
        what = f"one deviation for {count} of {len(column)} methods"
        yield Anomaly("repeated", first.place, f"± {first.std}", others, f"± {first.std}", what)


def _uniform(cells: Sequence[Cell]) -> Iterator[tuple[list[Cell], int]]:
    """The columns of uniform deviations, and how many cells have the usual one."""
    spread = [cell for cell in cells if cell.std]
    columns = grouped(spread, lambda cell: (cell.paper, cell.table, cell.metric, cell.setting, cell.variant))
    for column in columns.values():
        count = sum(cell.std == _usual(column) for cell in column)
        if count >= LEAST_UNIFORM and 4 * count >= 3 * len(column):
            yield column, count


def _usual(column: Sequence[Cell]) -> str:
    return statistics.mode(cell.std for cell in column)


def grouped(cells: Iterable[Cell], key: Callable[[Cell], K]) -> dict[K, list[Cell]]:
    """The cells by a key, in their order."""
    groups: dict[K, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[key(cell)].append(cell)
    return dict(groups)


def _measured(cells: Sequence[Cell]) -> list[Cell]:
    """What is equal by rare chance only; deviations that are all the same are told elsewhere, and left out."""
    uniform = {cell for column, _ in _uniform(cells) for cell in column}
    return [
        replace(cell, std="") if cell in uniform else cell
        for cell in cells
        if cell.metric in MEASURED and not {"chance_level", "censored"} & set(cell.kinds)
    ]


def _table_of(cell: Cell) -> tuple[str, str, str]:
    return (cell.paper, cell.table, cell.dataset)


def _same(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Cell]]:
    """All pairs of cells that should hold the same number."""
    for group in grouped(cells, lambda cell: cell.quantity).values():
        yield from ((a, b) for a, b in itertools.combinations(group, 2) if a.same_as(b))


def _chosen(a: Cell, b: Cell) -> bool:
    """Whether one of the tables holds a choice of the other's numbers."""
    return {(cell.paper, cell.table) for cell in (a, b)} == {("fedtoga", "2"), ("fedtoga", "7")}


def _differing(a: Cell, b: Cell) -> tuple[str, str, str] | None:
    """What two cells say and how that differs; None if it does not."""
    if a.number != b.number:
        return a.value, b.value, f"another number ({a.number - b.number:+.{_decimals(a, b)}f})"
    if a.std and b.std and float(a.std) != float(b.std):
        return a.shown, b.shown, "same value, another deviation"
    return None


def _decimals(a: Cell, b: Cell) -> int:
    return max(len(cell.value.partition(".")[2]) for cell in (a, b))


def _repeats(
    cells: Sequence[Cell],
    line: Callable[[Cell], Hashable],
    place: Callable[[Cell], Hashable],
    called: Callable[[Sequence[Cell]], str],
) -> Iterator[Anomaly]:
    """Pairs of a paper's lines that are of different things, and of which more numbers agree than chance allows."""
    lines = grouped(cells, lambda cell: (cell.paper, cell.table, line(cell)))
    told: set[frozenset[tuple[str, Hashable]]] = set()
    for ((paper_a, _, a), first), ((paper_b, _, b), second) in itertools.combinations(lines.items(), 2):
        pair = frozenset([(paper_a, a), (paper_b, b)])
        if paper_a != paper_b or a == b or pair in told or _chosen(first[0], second[0]):
            continue
        there = {place(cell): cell for cell in second}
        shared = [(cell, there[place(cell)]) for cell in first if place(cell) in there]
        values = [x.value for x, y in shared if x.number == y.number]
        spreads = [f"± {x.std}" for x, y in shared if x.std and x.std == y.std]
        with_spread = sum(bool(x.std and y.std) for x, y in shared)
        if _no_chance(len(values), len(spreads), len(shared), with_spread):
            told.add(pair)
            equal = " ".join([*values, *spreads])
            line_a, line_b = zip(*shared, strict=True)
            numbers = {"values": (values, len(shared)), "deviations": (spreads, with_spread)}
            what = " and ".join(f"{len(some)} of {most} {kind}" for kind, (some, most) in numbers.items() if some)
            yield Anomaly("repeated", called(line_a), equal, called(line_b), equal, f"{what} are equal, place by place")


def _no_chance(values: int, spreads: int, most_values: int, most_spreads: int) -> bool:
    """Three equal values that are half of all; or four numbers that are three quarters of all, or of the deviations.

    Deviations have few digits, so that some are equal by chance.
    """
    both, most = values + spreads, most_values + most_spreads
    return (
        (values >= 3 and 2 * values >= most_values)
        or (spreads >= 4 and 4 * spreads >= 3 * most_spreads)
        or (spreads > 0 and both >= 4 and 4 * both >= 3 * most)
    )


def _row(cells: Sequence[Cell]) -> str:
    """What a row is called, by the cells of it that count."""
    first, counts = cells[0], dict.fromkeys(cell.n_clients for cell in cells)
    datasets = dict.fromkeys(dataset_title(cell.dataset) for cell in cells)
    clients = f"{' or '.join(counts)} clients" if any(counts) else ""
    variant = first.own_variant if "target" not in first.own_variant else ""
    titles = [f"{first.paper} table {first.table}", " and ".join(datasets), clients, variant]
    return ", ".join(filter(None, [*titles, method_title(first.plain_method)]))
