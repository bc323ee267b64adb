"""Verdicts: each by hand, the rule at its borders, and what must hold for all numbers."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedflat.analysis.published.numbers import PublishedNumber
from fedflat.analysis.verdicts.equivalence import Noise, Spread
from fedflat.analysis.verdicts.margins import Margin
from fedflat.analysis.verdicts.verdict import PLURALS, Gap, Verdict, counts, verdict

PRINTED = PublishedNumber(80.0)
POINT, TENTH, EXACT = Margin(points=1), Margin(percent=10), Margin(exact=True)


def noise_of(std: float) -> Noise:
    """With 24 degrees of freedom: of a method with 25 seeds."""
    return Noise(Spread(std, 1, 25, 1))


# Three seeds with s = 0.3: SE = 0.3 (1/3 + 1)^(1/2) = 0.34641 with 24 degrees of freedom. t(0.95) = 1.71088 and
# t(0.975) = 2.06390, so the half widths are 0.59267 and 0.71496, and the margin is 1.005 with its rounding.
QUIET = noise_of(0.3)
LOUD = noise_of(0.7)


def around(mean: float) -> list[float]:
    return [mean - 0.2, mean, mean + 0.2]


CASES = [
    ("well within the margin", around(80.41), PRINTED, POINT, QUIET, "agrees", 0.41),
    ("the interval crosses the margin", around(80.42), PRINTED, POINT, QUIET, "inconclusive", 0.42),
    ("the interval crosses it from outside", around(81.71), PRINTED, POINT, QUIET, "inconclusive", 1.71),
    ("well outside", around(81.73), PRINTED, POINT, QUIET, "differs", 1.73),
    ("below", around(78.0), PRINTED, POINT, QUIET, "differs", -2.0),
    ("equal, but the noise is too large", around(80.0), PRINTED, POINT, LOUD, "inconclusive", 0.0),
    ("one seed", [80.0], PRINTED, POINT, None, "inconclusive", 0.0),
    ("one seed, the others show the deviation", [80.0], PRINTED, POINT, noise_of(0.3), "agrees", 0.0),
    ("a ratio within 10 %", [20.8, 21.0, 21.2], PublishedNumber(20.0), TENTH, noise_of(0.01), "agrees",
     math.log(20.8 * 21.0 * 21.2) / 3 - math.log(20)),
    ("a ratio of two", [40.0, 40.0], PublishedNumber(20.0), TENTH, noise_of(0.05), "differs", math.log(2)),
    ("a ratio below zero", [-1.0, 2.0], PublishedNumber(20.0), TENTH, QUIET, "not judged", None),
    ("a printed zero", [1.0, 2.0], PublishedNumber(0.0), TENTH, QUIET, "not judged", None),
    ("exact counts", [3.0, 3.0], PublishedNumber(2.0, decimals=0), EXACT, None, "differs", 1.0),
    ("counts of one seed", [3.0], PublishedNumber(2.0, decimals=0), EXACT, None, "differs", 1.0),
    ("equal counts", [2.0], PublishedNumber(2.0, decimals=0), EXACT, None, "agrees", 0.0),
    ("rounded counts", [1.3333], PublishedNumber(1.33), EXACT, None, "agrees", 0.0033),
    ("absolute seconds", [2.0], PRINTED, Margin(not_judged="another machine"), None, "not judged", None),
    ("nothing run", "not run", PRINTED, POINT, QUIET, "not run", None),
    ("no value yet", "not analysed", PRINTED, POINT, QUIET, "not analysed", None),
    ("diverged", "diverged", PRINTED, POINT, QUIET, "diverged", None),
    ("not reached here", "censored", PRINTED, TENTH, QUIET, "censored", None),
    ("a bound", [9.0], PublishedNumber(800.0, note="censored"), TENTH, QUIET, "censored", None),
    ("nothing printed", [80.0], None, POINT, QUIET, "not published", None),
    ("a dash", [80.0], PublishedNumber(None, note="not_reported"), POINT, QUIET, "not published", None),
    ("nothing printed, nothing run", "not run", None, POINT, QUIET, "not published", None),
    ("failed there", [80.0], PublishedNumber(None, note="failed"), POINT, QUIET, "not judged", None),
    ("failed there, not run here", "not run", PublishedNumber(None, note="failed"), POINT, QUIET, "not run", None),
    ("failed there, not reached here", "censored", PublishedNumber(None, note="failed"), TENTH, QUIET, "not judged",
     None),
    ("doubtful", [80.0], PublishedNumber(80.0, note="typo_suspected: x"), POINT, QUIET, "not judged", None),
    ("doubtful, and not run", "not run", PublishedNumber(80.0, note="ocr_zero_risk"), POINT, QUIET, "not run", None),
    ("confirmed", [80.0] * 3, PublishedNumber(80.0, note="crosscheck: equals table 2"), POINT, QUIET, "agrees", 0.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reproduced", "published", "margin", "noise", "kind", "gap"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_by_hand(reproduced, published, margin, noise, kind, gap):
    judged = verdict(reproduced, published, margin, noise)
    assert judged.kind == kind
    assert (judged.gap and judged.gap.value) == (None if gap is None else pytest.approx(gap, abs=1e-12))
    assert bool(judged.why) == (kind in ("not judged", "inconclusive"))


def test_every_kind_is_among_the_cases():
    assert {case[5] for case in CASES} == set(PLURALS)


def test_a_gap_says_what_decided():
    gap = verdict(around(80.5), PRINTED, POINT, QUIET).gap
    assert gap is not None
    assert (gap.error, gap.df) == (pytest.approx(0.3 * math.sqrt(4 / 3)), pytest.approx(24))
    assert gap.margin == pytest.approx(1.005)
    assert not gap.is_ratio
    # 0.5 + t(0.95, n - 1) 0.3 (1/n + 1)^(1/2) is 1.00509 for n = 62 (t = 1.6702), and 1.00490 for n = 63 (t = 1.6698).
    assert gap.seeds == 63


def test_texts():
    noise = Noise(Spread(0.5, 1, 25, 1), seeds=3)
    assert verdict(around(82), PRINTED, POINT, QUIET).text() == "differs (+2.00)"
    assert (
        verdict(around(82), PublishedNumber(80.0, decimals=0), POINT, QUIET).text(0) == "inconclusive (paper's noise)"
    )
    assert verdict([40.0] * 3, PublishedNumber(20.0), TENTH, noise_of(0.05)).text() == "differs (+100 %)"
    assert verdict(around(80.5), PRINTED, POINT, noise).text().startswith("inconclusive (needs ")
    assert verdict([80.0], PRINTED, POINT, None).text() == "inconclusive (one seed)"
    assert verdict(around(80), PRINTED, POINT, QUIET).text() == "agrees"
    assert Verdict("not judged", "doubtful in print").text() == "not judged"


def test_counts():
    some = [Verdict("not run")] * 5 + [Verdict("differs", gap=Gap(2.0, 1.0))] * 3 + [Verdict("agrees")] * 12
    assert counts(some) == "12 agree, 3 differ, 5 not run"
    assert counts([Verdict("differs"), Verdict("agrees"), Verdict("diverged")]) == "1 agrees, 1 differs, 1 diverged"
    doubtful, times = Verdict("not judged", "doubtful in print"), Verdict("not judged", "another machine")
    assert counts([doubtful, doubtful]) == "2 not judged (doubtful in print)"
    assert counts([times, doubtful, doubtful]) == "3 not judged (2: doubtful in print, 1: another machine)"
    assert counts([]) == "no cells"


ACCURACIES = st.floats(1, 100)
NOISES = st.builds(lambda std, methods: Noise(Spread(std, methods, 3, 0.5)), st.floats(0, 5), st.integers(1, 12))


@given(ACCURACIES, ACCURACIES, NOISES, st.integers(1, 10), st.sampled_from([POINT, TENTH]))
def test_above_and_below_are_judged_alike(mean, value, noise, seeds, margin):
    """Exchanging the two numbers, printed with many digits, turns the gap around and keeps the verdict."""
    one = verdict([mean] * seeds, PublishedNumber(value, decimals=12), margin, noise)
    other = verdict([value] * seeds, PublishedNumber(mean, decimals=12), margin, noise)
    assert one.kind == other.kind
    assert one.gap is not None
    assert other.gap is not None
    assert one.gap.value == pytest.approx(-other.gap.value, abs=1e-9)


@given(ACCURACIES, ACCURACIES, NOISES, st.floats(0, 5), st.integers(2, 10))
def test_more_spread_never_makes_a_decision(mean, value, noise, more, seeds):
    wider = Noise(replace(noise.runs, std=noise.runs.std + more))
    narrow, wide = (verdict([mean] * seeds, PublishedNumber(value), POINT, one).kind for one in (noise, wider))
    assert wide in (narrow, "inconclusive")
