"""Audit by arithmetic: averages, gains and multiples that do not follow from the numbers they are computed from."""

import statistics
from collections.abc import Iterator, Sequence

from studies.papers.anomalies import Anomaly
from studies.papers.audit_repeats import grouped
from studies.papers.printed_numbers import PrintedNumber, dataset_title, method_title

GAINS = ("test_accuracy_gain", "accuracy_gain_abs", "accuracy_gain_rel_pct")

TIME_FACTOR = 1.5
"""A method's computation per round is reported if it differs from the method's median by this factor or more."""


def averages(numbers: Sequence[PrintedNumber]) -> Iterator[Anomaly]:
    """Averages over settings (FedLESAM's Table 4), recomputed from the paper's other tables."""
    settings = grouped(numbers, lambda printed: (printed.paper, printed.dataset, printed.quantity))
    for printed in numbers:
        if printed.metric != "test_accuracy" or printed.own_variant != "average_over_settings":
            continue
        parts = settings.get((printed.paper, printed.dataset, (printed.plain_method, printed.metric, "")), [])
        mean = statistics.fmean(part.number for part in parts)
        if _off(printed, mean):
            tables = " and ".join(dict.fromkeys(f"{part.paper} table {part.table}" for part in parts))
            titles = f"{dataset_title(printed.dataset)}, {method_title(printed.method)}"
            place = f"{tables}, {titles}, mean of {len(parts)} cells"
            yield Anomaly("inside", printed.place, printed.value, place, f"{mean:.3f}", "is not the average")


def gains(numbers: Sequence[PrintedNumber]) -> Iterator[Anomaly]:
    """Gains in accuracy, recomputed from the accuracies of method and reference, preferably of the same table."""
    accuracies = grouped(
        (printed for printed in numbers if printed.metric == "test_accuracy"),
        lambda printed: (printed.paper, printed.setting, printed.plain_method),
    )
    for printed in numbers:
        if printed.metric not in GAINS:
            continue
        reference = printed.options.get("relative_to") or printed.options["over"]
        pair = []
        for method in (printed.plain_method, reference):
            known = accuracies.get((printed.paper, printed.setting, method), [])
            plain = [
                known_number
                for known_number in known
                if known_number.table == printed.table or not known_number.own_variant
            ]
            pair += sorted(plain, key=lambda found: found.table != printed.table)[:1]
        if len(pair) < 2:
            continue
        own, base = pair
        relative = 100 / base.number if printed.metric == "accuracy_gain_rel_pct" else 1.0
        gain = relative * (own.number - base.number)
        if _off(printed, gain, relative * (own.half_unit + base.half_unit)):
            said = f"{own.value} against {base.value}: {gain:+.2f}"
            yield Anomaly("inside", printed.place, printed.value, own.place, said, "is not the gain")


def multiples(numbers: Sequence[PrintedNumber]) -> Iterator[Anomaly]:
    """Multiples of a reference's rounds or transmissions, recomputed from the numbers of the same table."""
    costs = {
        (printed.paper, printed.table, printed.setting, printed.options["target"], printed.plain_method): printed
        for printed in numbers
        if printed.metric in ("rounds_to_target", "model_transmissions") and "target" in printed.options
    }
    for printed in numbers:
        reference = printed.options.get("relative_to")
        if printed.metric != "comm_cost_x" or reference is None or "target" not in printed.options:
            continue
        own, base = (
            costs.get((printed.paper, printed.table, printed.setting, printed.options["target"], method))
            for method in (printed.plain_method, reference)
        )
        if own is None or base is None:
            continue
        ratio = own.number / base.number
        # Rounds are whole numbers; transmissions are rounded to their unit.
        slack = ratio * (own.half_unit / own.number + base.half_unit / base.number) if "unit" in own.options else 0.0
        if _off(printed, ratio, slack):
            said = f"{own.value} / {base.value} = {ratio:.2f}"
            yield Anomaly("inside", printed.place, printed.value, own.place, said, "is not the ratio")


def traffic(numbers: Sequence[PrintedNumber]) -> Iterator[Anomaly]:
    """FedLESAM's traffic to a target, recomputed as rounds × traffic per round (Table 7), in multiples of FedAvg's."""
    per_round = {
        c.method: c.number for c in numbers if (c.paper, c.table, c.metric) == ("fedlesam", "7", "comm_cost_x")
    }
    for rounds, printed in _with_rounds(numbers, "comm_cost_x"):
        expected, slack = rounds[0] * per_round[printed.method], rounds[1] * per_round[printed.method]
        if _off(printed, expected, slack):
            place = f"fedlesam tables 7 and {printed.table}, {printed.where}, {method_title(printed.method)}"
            said = f"{per_round[printed.method]:g} × {rounds[0]:.2f} = {expected:.2f}"
            yield Anomaly("inside", printed.place, printed.value, place, said, "is not the product")


def time_per_round(numbers: Sequence[PrintedNumber]) -> Iterator[Anomaly]:
    """FedLESAM's computation per round, in multiples of FedAvg's, which a method should have in every column."""
    ratios = [(printed, printed.number / rounds[0]) for rounds, printed in _with_rounds(numbers, "compute_time_x")]
    for method in dict.fromkeys(printed.method for printed, _ in ratios):
        own = [(printed, ratio) for printed, ratio in ratios if printed.method == method]
        median = statistics.median(ratio for _, ratio in own)
        for printed, ratio in own:
            if not median / TIME_FACTOR < ratio < median * TIME_FACTOR:
                usual, usual_ratio = min(own, key=lambda pair: abs(pair[1] - median))
                said = f"{printed.value}x, {ratio:.2f} per round"
                usual_said = f"{usual.value}x, {usual_ratio:.2f} per round"
                yield Anomaly("inside", printed.place, said, usual.place, usual_said, "another cost of a round")


def targets(numbers: Sequence[PrintedNumber]) -> Iterator[Anomaly]:
    """Targets reported as reached although all printed accuracies are lower, or as missed although one is higher."""
    accuracies = grouped(
        (printed for printed in numbers if printed.metric == "test_accuracy"),
        lambda printed: (printed.paper, printed.setting, printed.plain_method),
    )
    for printed in numbers:
        finals = accuracies.get((printed.paper, printed.setting, printed.plain_method), [])
        if printed.metric != "rounds_to_target" or not finals:
            continue
        best = max(finals, key=lambda final: (final.number, final.table == printed.table, int(final.table)))
        target, never = 100 * float(printed.options["target"]), "censored" in printed.kinds
        if never and best.number > target:
            yield Anomaly(
                "inside", printed.place, f"{printed.value}+", best.place, best.value, "never, though above it"
            )
        elif not never and best.number < target:
            yield Anomaly("inside", printed.place, printed.value, best.place, best.value, "reached, though below it")


def _with_rounds(numbers: Sequence[PrintedNumber], metric: str) -> Iterator[tuple[tuple[float, float], PrintedNumber]]:
    """Pairs ((rounds in multiples of FedAvg's, their rounding error), cost) for FedLESAM's costs to a target."""
    own = [printed for printed in numbers if printed.paper == "fedlesam" and "target" in printed.options]
    known = {(printed.metric, printed.method, printed.setting, printed.options["target"]): printed for printed in own}
    for printed in own:
        if printed.metric != metric:
            continue
        where = (printed.setting, printed.options["target"])
        multiple, rounds = (
            known.get((name, printed.method, *where)) for name in ("rounds_to_target_x", "rounds_to_target")
        )
        if multiple is not None:
            yield (multiple.number, multiple.half_unit), printed
        elif rounds is not None:
            yield (rounds.number / known["rounds_to_target", "fedavg", *where].number, 0.0), printed


def _off(printed: PrintedNumber, expected: float, slack: float = 0.0) -> bool:
    """Whether a printed value differs from the expected one by more than its rounding error plus `slack`."""
    return abs(printed.number - expected) > printed.half_unit + slack + 1e-9
