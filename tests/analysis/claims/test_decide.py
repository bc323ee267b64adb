"""The rule of claims: intervals against scipy, composition by hand, and probabilities of error by simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from fedflat.analysis.claims.decide import AtLeast, Contrast, Region, decide, every, interval
from fedflat.bench.experiments.address import CellAddress
from tests.analysis.binomial import at_most, deviations
from tests.tiers import case

ABOVE = Region(0, strict=True)


def cell(method, partition="iid"):
    return CellAddress.of(f"digits/{partition}/4-of-20/{method}")


def difference(a, b, region=ABOVE, *, log=False):
    return Contrast(((cell(a), 1), (cell(b), -1)), region, f"{a} - {b}", log=log)


def values(**by_method):
    return {cell(method): dict(enumerate(of_seeds)) for method, of_seeds in by_method.items()}


def printed(**by_method):
    return values(**{method: [value] for method, value in by_method.items()})


def test_the_interval_of_differences_is_that_of_scipys_paired_t_test():
    a, b = np.array([81.2, 80.4, 82.9]), np.array([79.8, 80.1, 80.7])
    found = decide(difference("a", "b"), values(a=a, b=b), exact=False)
    assert found.interval == pytest.approx(stats.ttest_rel(a, b).confidence_interval(0.95))
    assert found.value == pytest.approx(1.3)
    assert found.seeds == 3


def test_the_interval_of_ratios_is_that_of_logarithms():
    a, b = np.array([300.0, 330.0, 280.0]), np.array([100.0, 105.0, 98.0])
    found = decide(difference("a", "b", log=True), values(a=a, b=b), exact=False)
    assert found.interval == pytest.approx(stats.ttest_rel(np.log(a), np.log(b)).confidence_interval(0.95))


def test_seeds_are_paired():
    """Only seeds that both methods have count, and each difference is within a seed."""
    found = decide(
        difference("a", "b"), {cell("a"): {0: 1.0, 1: 11.0, 2: 5.0}, cell("b"): {1: 10.0, 0: 0.0}}, exact=False
    )
    assert (found.value, found.interval, found.seeds) == (1.0, (1.0, 1.0), 2)


@pytest.mark.parametrize(
    ("a", "b", "outcome"),
    [
        ([5, 6, 7], [1, 2, 3], "holds"),
        ([1, 2, 3], [5, 6, 7], "fails"),
        ([1, 5, 9], [4, 5, 1], "undecided"),
        ([9], [1], "undecided"),  # one seed
        ([math.inf, math.inf], [1, 2], "undecided"),  # two diverged runs have no interval
        ([], [1, 2], "undecided"),
    ],
)
def test_outcomes_of_runs(a, b, outcome):
    assert decide(difference("a", "b"), values(a=a, b=b), exact=False).outcome == outcome


@pytest.mark.parametrize(
    ("region", "value", "outcome"),
    [
        (ABOVE, 0.0, "fails"),
        (Region(0), 0.0, "holds"),
        (Region(0), -1e-12, "holds"),
        (ABOVE, math.inf, "holds"),
        (Region(0, 2), math.inf, "fails"),
        (Region(1, 2), 2.0, "holds"),
        (Region(high=2), 2.1, "fails"),
        (ABOVE, math.nan, "undecided"),
    ],
)
def test_one_exact_value_decides(region, value, outcome):
    statement = Contrast(((cell("a"), 1),), region, "a")
    assert decide(statement, printed(a=value), exact=True).outcome == outcome


def test_exact_values_that_differ_are_an_interval():
    statement = Contrast(((cell("a"), 1),), Region(1, 2), "a")
    assert decide(statement, values(a=[1.0, 2.0]), exact=True).outcome == "holds"
    assert decide(statement, values(a=[1.0, 3.0]), exact=True).outcome == "undecided"


def test_the_worst_part_decides_if_all_must_hold_and_the_best_if_any():
    parts = tuple(difference("a", other) for other in "bcd")
    numbers = printed(a=5, b=1, c=4, d=7)
    for least, outcome, name in ((3, "fails", "a - d"), (2, "holds", "a - c"), (1, "holds", "a - b")):
        found = decide(AtLeast(least, parts), numbers, exact=True)
        assert (found.outcome, found.contrast.name) == (outcome, name)


def test_a_certain_failure_is_shown_before_a_larger_uncertain_one():
    """And a certain success: what is shown has the outcome that it explains."""
    parts = (difference("a", "b"), difference("a", "c"))
    noisy = {"c": [11.0, -3.0, 16.0]}
    for least, ours, outcome in ((2, [4.0, 4.0, 4.0], "fails"), (1, [6.0, 6.0, 6.0], "holds")):
        found = decide(AtLeast(least, parts), values(a=ours, b=[5.0, 5.0, 5.0], **noisy), exact=False)
        assert (found.outcome, found.contrast.name) == (outcome, "a - b")
    best = decide(AtLeast(1, parts), values(a=[9.0, 9.0, 9.0], b=[8.9, 8.9, 8.9], **noisy), exact=False)
    assert (best.outcome, best.contrast.name) == ("holds", "a - b")


def test_missing_parts_leave_open_only_what_they_could_change():
    parts = tuple(difference("a", other) for other in "bcd")
    numbers = printed(a=5, b=1, c=7)
    assert [decide(AtLeast(m, parts), numbers, exact=True).outcome for m in (1, 2, 3)] == [
        "holds",
        "undecided",
        "fails",
    ]


def test_with_missing_numbers_the_part_is_shown_that_decides_if_their_parts_held():
    """Of a method that is among the best two, the difference from the second best of the others is shown."""
    second = AtLeast(9, tuple(difference("a", other) for other in "bcdefghijk"))
    assert decide(second, printed(a=5, b=1, c=4, d=7, e=9), exact=False).contrast.name == "a - d"
    every = AtLeast(10, second.parts)
    assert decide(every, printed(a=5, b=1, c=4, d=7, e=9), exact=False).contrast.name == "a - e"


RUNS, SEEDS = 4_000, 3


QUICK = {(1, "any"), (4, "all"), (10, "most")}
CASES = [
    case(others, least, quick=(others, least) in QUICK) for others in (1, 4, 10) for least in ("all", "most", "any")
]


@pytest.mark.parametrize(("others", "least"), CASES)
def test_false_outcomes_are_at_most_five_percent(others, least):
    """'holds' of a barely false claim, and 'fails' of a barely true one, in the worst cases.

    Method a equals the others that decide; the rest of the parts is clearly true for 'holds', so that only those parts
    matter, or all are on the edge, which is the worst case of 'fails' of a claim about all.
    """
    m = {"all": others, "most": others // 2 + 1, "any": 1}[least]
    names = [f"b{k}" for k in range(others)]
    statement = AtLeast(m, tuple(difference("a", name) for name in names))
    rng = np.random.default_rng(17)
    false = {"holds": 0, "fails": 0}
    for wrong, edge in (("holds", others - m + 1), ("fails", m)):
        clear = -50.0 if wrong == "holds" else 50.0
        means = np.r_[np.zeros(edge), np.full(others - edge, clear)]
        for _ in range(RUNS // 4):
            numbers = {cell("a"): dict(enumerate(rng.normal(size=SEEDS)))}
            numbers |= {
                cell(name): dict(enumerate(rng.normal(mean, size=SEEDS)))
                for name, mean in zip(names, means, strict=True)
            }
            false[wrong] += decide(statement, numbers, exact=False).outcome == wrong
    n = RUNS // 4
    assert false["holds"] / n <= at_most(0.05, n)
    assert false["fails"] / n <= at_most(0.05, n)


def test_ninety_five_of_a_hundred_intervals_hold_the_mean():
    rng = np.random.default_rng(18)
    hits = sum(low <= 1 <= high for low, high in (interval(rng.normal(1, 2, size=SEEDS)) for _ in range(RUNS)))
    assert abs(hits / RUNS - 0.95) <= deviations(0.95, RUNS)


def test_every_of_one_part_is_this_part():
    part = difference("a", "b")
    assert every([part]) is part
