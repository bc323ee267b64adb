"""Computed part of the audit: averages, gains and multiples that do not follow from the numbers they are made of."""

import statistics
from collections.abc import Iterator, Sequence

from analysis.published.anomalies import Anomaly
from analysis.published.audit_repeats import grouped
from analysis.published.printed_cells import Cell, dataset_title, method_title

GAINS = ("test_accuracy_gain", "accuracy_gain_abs", "accuracy_gain_rel_pct")

TIME_FACTOR = 1.5
"""A method's computation per round differs between columns of a paper by less."""


def averages(cells: Sequence[Cell]) -> Iterator[Anomaly]:
    """Averages over settings (FedLESAM's Table 4), recomputed from the paper's other tables."""
    settings = grouped(cells, lambda cell: (cell.paper, cell.dataset, cell.quantity))
    for cell in cells:
        if cell.metric != "test_accuracy" or cell.own_variant != "average_over_settings":
            continue
        parts = settings.get((cell.paper, cell.dataset, (cell.plain_method, cell.metric, "")), [])
        mean = statistics.fmean(part.number for part in parts)
        if _off(cell, mean):
            tables = " and ".join(dict.fromkeys(f"{part.paper} table {part.table}" for part in parts))
            place = f"{tables}, {dataset_title(cell.dataset)}, {method_title(cell.method)}, mean of {len(parts)} cells"
            yield Anomaly("inside", cell.place, cell.value, place, f"{mean:.3f}", "is not the average")


def gains(cells: Sequence[Cell]) -> Iterator[Anomaly]:
    """Gains in accuracy, recomputed from the method's and the reference's accuracy; that of the same table first."""
    accuracies = grouped(
        (cell for cell in cells if cell.metric == "test_accuracy"),
        lambda cell: (cell.paper, cell.setting, cell.plain_method),
    )
    for cell in cells:
        if cell.metric not in GAINS:
            continue
        reference = cell.options.get("relative_to") or cell.options["over"]
        pair = []
        for method in (cell.plain_method, reference):
            known = accuracies.get((cell.paper, cell.setting, method), [])
            plain = [known_cell for known_cell in known if known_cell.table == cell.table or not known_cell.own_variant]
            pair += sorted(plain, key=lambda found: found.table != cell.table)[:1]
        if len(pair) < 2:
            continue
        own, base = pair
        relative = 100 / base.number if cell.metric == "accuracy_gain_rel_pct" else 1.0
        gain = relative * (own.number - base.number)
        if _off(cell, gain, relative * (own.half_unit + base.half_unit)):
            said = f"{own.value} against {base.value}: {gain:+.2f}"
            yield Anomaly("inside", cell.place, cell.value, own.place, said, "is not the gain")


def multiples(cells: Sequence[Cell]) -> Iterator[Anomaly]:
    """Multiples of a reference's rounds or transmissions, recomputed from the numbers of the same table."""
    costs = {
        (cell.paper, cell.table, cell.setting, cell.options["target"], cell.plain_method): cell
        for cell in cells
        if cell.metric in ("rounds_to_target", "model_transmissions") and "target" in cell.options
    }
    for cell in cells:
        reference = cell.options.get("relative_to")
        if cell.metric != "comm_cost_x" or reference is None or "target" not in cell.options:
            continue
        own, base = (
            costs.get((cell.paper, cell.table, cell.setting, cell.options["target"], method))
            for method in (cell.plain_method, reference)
        )
        if own is None or base is None:
            continue
        ratio = own.number / base.number
        # Rounds are whole; transmissions are rounded to a unit.
        slack = ratio * (own.half_unit / own.number + base.half_unit / base.number) if "unit" in own.options else 0.0
        if _off(cell, ratio, slack):
            said = f"{own.value} / {base.value} = {ratio:.2f}"
            yield Anomaly("inside", cell.place, cell.value, own.place, said, "is not the ratio")


def traffic(cells: Sequence[Cell]) -> Iterator[Anomaly]:
    """FedLESAM's traffic to a target, recomputed as rounds × traffic per round (Table 7), in multiples of FedAvg's."""
    per_round = {c.method: c.number for c in cells if (c.paper, c.table, c.metric) == ("fedlesam", "7", "comm_cost_x")}
    for rounds, cell in _with_rounds(cells, "comm_cost_x"):
        expected, slack = rounds[0] * per_round[cell.method], rounds[1] * per_round[cell.method]
        if _off(cell, expected, slack):
            place = f"fedlesam tables 7 and {cell.table}, {cell.where}, {method_title(cell.method)}"
            said = f"{per_round[cell.method]:g} × {rounds[0]:.2f} = {expected:.2f}"
            yield Anomaly("inside", cell.place, cell.value, place, said, "is not the product")


def time_per_round(cells: Sequence[Cell]) -> Iterator[Anomaly]:
    """FedLESAM's computation per round, in multiples of FedAvg's: one number per method, whatever the column."""
    ratios = [(cell, cell.number / rounds[0]) for rounds, cell in _with_rounds(cells, "compute_time_x")]
    for method in dict.fromkeys(cell.method for cell, _ in ratios):
        own = [(cell, ratio) for cell, ratio in ratios if cell.method == method]
        median = statistics.median(ratio for _, ratio in own)
        for cell, ratio in own:
            if not median / TIME_FACTOR < ratio < median * TIME_FACTOR:
                usual, usual_ratio = min(own, key=lambda pair: abs(pair[1] - median))
                said = f"{cell.value}x, {ratio:.2f} per round"
                usual_said = f"{usual.value}x, {usual_ratio:.2f} per round"
                yield Anomaly("inside", cell.place, said, usual.place, usual_said, "another cost of a round")


def targets(cells: Sequence[Cell]) -> Iterator[Anomaly]:
    """Targets that were reached although all printed accuracies are lower, or never although one is higher."""
    accuracies = grouped(
        (cell for cell in cells if cell.metric == "test_accuracy"),
        lambda cell: (cell.paper, cell.setting, cell.plain_method),
    )
    for cell in cells:
        finals = accuracies.get((cell.paper, cell.setting, cell.plain_method), [])
        if cell.metric != "rounds_to_target" or not finals:
            continue
        best = max(finals, key=lambda final: (final.number, final.table == cell.table, int(final.table)))
        target, never = 100 * float(cell.options["target"]), "censored" in cell.kinds
        if never and best.number > target:
            yield Anomaly("inside", cell.place, f"{cell.value}+", best.place, best.value, "never, though above it")
        elif not never and best.number < target:
            yield Anomaly("inside", cell.place, cell.value, best.place, best.value, "reached, though below it")


def _with_rounds(cells: Sequence[Cell], metric: str) -> Iterator[tuple[tuple[float, float], Cell]]:
    """FedLESAM's costs to a target, with rounds in multiples of FedAvg's and what rounding may have changed them."""
    own = [cell for cell in cells if cell.paper == "fedlesam" and "target" in cell.options]
    printed = {(cell.metric, cell.method, cell.setting, cell.options["target"]): cell for cell in own}
    for cell in own:
        if cell.metric != metric:
            continue
        where = (cell.setting, cell.options["target"])
        multiple, rounds = (
            printed.get((name, cell.method, *where)) for name in ("rounds_to_target_x", "rounds_to_target")
        )
        if multiple is not None:
            yield (multiple.number, multiple.half_unit), cell
        elif rounds is not None:
            yield (rounds.number / printed["rounds_to_target", "fedavg", *where].number, 0.0), cell


def _off(cell: Cell, expected: float, slack: float = 0.0) -> bool:
    """Whether the printed value is further from the expected one than rounding, and the latter's `slack`, allow."""
    return abs(cell.number - expected) > cell.half_unit + slack + 1e-9
