"""Which trials come next, by made-up results: the winner is given by a function of the values."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fedflat.bench.training.same_cohort import same_cohort
from fedflat.bench.tuning.protocol.plan import NEUTRAL, OfBase, OfMethod, Plan
from fedflat.bench.tuning.protocol.reading import SearchedGrid
from fedflat.bench.tuning.protocol.trial_results import Planned, TrialResult, Values, best, confirmed
from fedflat.bench.tuning.protocol.units import Units
from fedflat.bench.tuning.trials import with_values

LR, DECAY, RHO = "training.lr", "training.weight_decay", "hyperparameters.rho"
Score = Callable[[Values], float]


@pytest.fixture(scope="module")
def units() -> Units:
    return Units(SearchedGrid.read("flat1d"), Path("results"))


def searched(plan: Plan, score: Score, of_base: Sequence[TrialResult] = (), distance: float = 2.0) -> list[TrialResult]:
    """All results of a plan, whose trials are fitted with this validation accuracy."""
    results: list[TrialResult] = []
    while (batch := plan.next_batch(results, of_base)) is not None:
        for planned in batch:
            value = score(planned.values)
            results.append(TrialResult(len(results), planned, 100.0, value, fitted=True, distance=distance))
    return results


def shared(plan: Plan, results: list[TrialResult]) -> list[TrialResult]:
    assert isinstance(plan, OfBase)
    return [result for result in results if result.planned.stage in plan.shared]


def of_method(units: Units, label: str, score: Score, **options: Any) -> list[TrialResult]:
    unit = units.of("main", label, 1000)
    assert unit.of_base is not None
    base = unit.of_base.plan
    return searched(unit.plan, score, shared(base, searched(base, score)), **options)


def middle(values: Values) -> float:
    """Best at a rate of 0.2 and a radius of 0.1, which are not at ends."""
    return 50 - abs(values[LR] - 0.2) - abs(float(values.get(RHO) or 0) - 0.1)


def test_every_method_has_56_trials_of_which_36_are_its_bases(units: Units) -> None:
    for label in units.protocol.labels:
        plan = units.of("main", label, 1000).plan
        if isinstance(plan, OfBase):
            assert len(searched(plan, middle)) == 56
            assert len(shared(plan, searched(plan, middle))) == 36
        else:
            stages = Counter(result.planned.stage for result in of_method(units, label, middle))
            assert stages == {NEUTRAL: 4, "points": 10, "beyond": 2, "further": 4, "confirm": 4}, label


def test_equal_results_give_equal_trials_and_methods_and_seeds_draw_differently(units: Units) -> None:
    def drawn(label: str, seed: int) -> list[float]:
        plan = units.of("main", label, seed).plan
        return [planned.values[LR] for planned in plan.batch("base", (), ())]

    assert drawn("fedavg", 1000) == drawn("fedavg", 1000)
    assert drawn("fedavg", 1000)[0] == drawn("scaffold", 1001)[0] == 0.1, "the experiment's"
    others = [set(drawn(*one)[1:]) for one in (("fedavg", 1000), ("scaffold", 1000), ("fedavg", 1001))]
    assert not others[0] & others[1] or len(others[0] & others[1]) < 3
    assert len(others[0] & others[2]) < 3
    plan = units.of("main", "fedavg", 1000).plan
    assert [result.values for result in searched(plan, middle)] == [result.values for result in searched(plan, middle)]


def test_draws_are_in_their_ranges_and_spread(units: Units) -> None:
    batch = units.of("main", "feddyn", 1000).plan.batch("base", (), ())
    for place, (low, high) in batch[0].ends.items():
        values = sorted(planned.values[place] for planned in batch[1:])
        assert low <= values[0] < values[-1] <= high
    lower = sum(planned.values[LR] < (0.03 * 1.0) ** 0.5 for planned in batch[1:])
    assert 6 <= lower <= 9, "half of them in the lower half of the logarithm"


def test_a_range_widens_to_its_bound_where_the_winner_is_at_its_end(units: Units) -> None:
    def steep(values: Values) -> float:
        return 50 + values[LR]

    results = searched(units.of("main", "fedavg", 1000).plan, steep)
    by_stage = {stage: [r for r in results if r.planned.stage == stage] for stage in ("base", "widen 1", "widen 2")}
    assert {r.planned.ends[LR] for r in by_stage["base"]} == {(0.03, 1.0)}
    top = best(by_stage["base"], 1)[0].values[LR]
    assert top > 0.03**0.05, "it lies within 5 % of the high end, 1"
    first, second = by_stage["widen 1"]
    assert first.planned.ends[LR] == (0.03, 2.0)
    assert second.values[LR] == 2.0
    assert first.values[LR] == pytest.approx((top * 2.0) ** 0.5, rel=0.01), "half way, in the logarithm"
    rate = "training.server_lr"
    assert first.values[rate] == best(by_stage["base"], 1)[0].values[rate], "the winner's other values"
    assert {r.planned.ends[LR] for r in by_stage["widen 2"]} == {(0.03, 2.0)}, "the bound is reached"


def test_a_range_can_widen_twice_and_at_its_low_end(units: Units) -> None:
    def small(values: Values) -> float:
        return 50 - values[LR] - values[DECAY]

    plan = units.of("main", "fedavg", 1000).plan
    results = [
        TrialResult(
            k, Planned(p.stage, {**p.values, LR: 0.03 if k == 3 else 0.5}, p.ends), 100.0, 90.0 - (k != 3), True, 1.0
        )
        for k, p in enumerate(plan.batch("base", (), ()))
    ]
    for stage, low in (("widen 1", 0.015), ("widen 2", 0.0075)):
        batch = plan.batch(stage, results, ())
        assert [p.ends[LR][0] for p in batch] == [low, low]
        assert batch[1].values[LR] == low
        results += [
            TrialResult(len(results) + k, p, 100.0, 95.0 + small(p.values), fitted=True, distance=1.0)
            for k, p in enumerate(batch)
        ]


def test_draws_around_the_best_stay_near_and_within_the_bound(units: Units) -> None:
    results = searched(units.of("main", "feddyn", 1000).plan, middle)
    step = (1.0 / 0.03) ** 0.1
    stages = units.of("main", "feddyn", 1000).plan.stages
    for stage in ("refine", "own", "further"):
        early = [r for r in results if stages.index(r.planned.stage) < stages.index(stage)]
        centres = [r.values[LR] for r in (confirmed(early, 2) or best(early, 2))]
        for k, drawn in enumerate([r for r in results if r.planned.stage == stage]):
            assert centres[k % 2] / step * 0.99 <= drawn.values[LR] <= centres[k % 2] * step * 1.01


def test_a_method_tries_its_points_with_the_best_two_of_its_base(units: Units) -> None:
    results = of_method(units, "fedsam", middle)
    neutral, points, beyond, *_ = (
        [r for r in results if r.planned.stage == stage] for stage in units.of("main", "fedsam", 1000).plan.stages
    )
    assert None not in [r.planned.taken for r in neutral]
    assert [r.planned.again for r in neutral] == [None, None, 0, 1]
    assert [r.values[RHO] for r in neutral] == [0] * 4
    assert [r.values[RHO] for r in points] == [0.02, 0.05, 0.1, 0.2, 0.4] * 2
    for k, one in enumerate(points):
        assert {**one.values, RHO: 0} == neutral[k // 5].values, "all else is the base's"
    assert [r.values[RHO] for r in beyond] == [0.0707, 0.141], "between the best point, 0.1, and its neighbours"


@pytest.mark.parametrize(
    ("top", "label", "expected"),
    [
        (0.4, "fedsam", [0.8, 0.8]),
        (0.0, "fedsam", [0.01, 0.005]),
        (0.02, "fedsam", [0.01, 0.0316]),
        (4.0, "fedasam", [8.0, 8.0]),
        (0.0, "fedasam", [0.1, 0.05]),
    ],
)
def test_beyond_the_points(units: Units, top: float, label: str, expected: list[float]) -> None:
    def score(values: Values) -> float:
        return 50 - abs(values.get(RHO, 0.0) - top)

    beyond = [r for r in of_method(units, label, score) if r.planned.stage == "beyond"]
    assert [r.values[RHO] for r in beyond] == expected


def test_points_without_a_scale_are_refined_with_the_values_of_the_base(units: Units) -> None:
    swa = "hyperparameters.swa"

    def score(values: Values) -> float:
        return 50 + 10 * (values.get(swa) == {"cycle": 20, "lr_end": 0.01})

    results = of_method(units, "fedavg+swa", score)
    assert [r.values[swa] for r in results[:2]] == [None, None]
    for one in (r for r in results if r.planned.stage in ("beyond", "further", "confirm")):
        assert one.values[swa] == {"cycle": 20, "lr_end": 0.01}


def test_thresholds_of_fedgf_are_multiples_of_the_distance_as_numbers(units: Units) -> None:
    place = "hyperparameters.T_D"
    results = of_method(units, "fedgf", middle, distance=0.123456)
    assert {r.values[place] for r in results if r.planned.stage not in ("further", "confirm")} == {"inf"}
    further = [r for r in results if r.planned.stage == "further"]
    assert [r.values[place] for r in further] == [0.06173, 0.1235, 0.2469, 0.1235]
    assert [r.values["hyperparameters.rho_g"] for r in further] == [0.1, 0.1, 0.1, 0.3]
    assert json.loads(json.dumps(further[0].values)) == further[0].values


def test_fitted_trials_come_first_and_failed_ones_last() -> None:
    planned = Planned("base", {}, {})
    scores = [(99.5, 60.0, True), (98.0, 90.0, False), (100.0, 70.0, True), (None, None, False), (98.5, 10.0, False)]
    results = [
        TrialResult(k, planned, train, validation, fitted, 1.0) for k, (train, validation, fitted) in enumerate(scores)
    ]
    assert [result.number for result in best(results, 5)] == [2, 0, 4, 1, 3]
    tied = [TrialResult(k, planned, 100.0, 70.0, fitted=True, distance=1.0) for k in range(3)]
    assert [result.number for result in best(tied, 3)] == [0, 1, 2], "the smaller number wins"
    assert all(a.rank > b.rank for a, b in pairwise(best(results, 5)))


def test_a_base_of_which_nothing_is_fitted_still_has_a_best_two(units: Units) -> None:
    base, method = (units.of("main", label, 1000).plan for label in ("fedavg", "fedsam"))
    assert isinstance(method, OfMethod)
    results = [
        TrialResult(k, planned, None if k == 5 else float(k), 10.0, fitted=False, distance=1.0)
        for k, planned in enumerate(base.batch("base", (), ()))
    ]
    again = base.batch("confirm base", results, ())
    assert [planned.again for planned in again] == [15, 14, 13, 12]
    results += [
        TrialResult(16 + k, planned, 50.0 + k, 10.0, fitted=False, distance=1.0) for k, planned in enumerate(again)
    ]
    neutral = method.batch(NEUTRAL, (), results)
    assert [planned.taken for planned in neutral] == [12, 13, 19, 18], "by the mean of both runs"
    assert [planned.again for planned in neutral] == [None, None, 0, 1]


def test_a_trial_that_fails_with_the_second_seed_does_not_win(units: Units) -> None:
    """Rates at the edge of stability: the best trials of one seed are not fitted with the other."""
    plan = units.of("main", "fedavg", 1000).plan
    results: list[TrialResult] = []
    while (batch := plan.next_batch(results)) is not None:
        for planned in batch:
            is_again = planned.again is not None
            dies = is_again and planned.values[LR] > 0.5
            score = 10.0 if dies else 50.0 - abs(planned.values[LR] - 0.52) + is_again
            results.append(TrialResult(len(results), planned, 10.0 if dies else 100.0, score, not dies, 1.0))
    [lucky], [won] = best([r for r in results if r.planned.again is None], 1), confirmed(results, 1)
    assert lucky.values[LR] > 0.5 >= won.values[LR]
    assert (won.fitted, won.validation_accuracy) == (True, pytest.approx(50.5 - (0.52 - won.values[LR])))
    early = confirmed([r for r in results if r.planned.stage in plan.shared], 2)
    drawn = [r.values[LR] for r in results if r.planned.stage == "own"]
    assert max(drawn) <= 1.43 * max(r.values[LR] for r in early), "around the best two of the confirmed trials"
    again = [r.planned.again for r in results if r.planned.again is not None]
    assert len(set(again)) == len(again) == 8, "no trial is confirmed twice"


def test_one_failed_run_of_two_is_a_failed_trial() -> None:
    first = TrialResult(0, Planned("base", {}, {}), 100.0, 80.0, fitted=True, distance=1.0)
    second = TrialResult(1, Planned("confirm", {}, {}, again=0), None, None, fitted=False, distance=None)
    [found] = confirmed([first, second], 5)
    assert (found.fitted, found.train_accuracy, found.validation_accuracy) == (False, None, None)
    assert found.rank[:2] == (False, -1.0)


@pytest.mark.parametrize("label", ["fedasam", "fedgf", "fedtoga", "fedscam", "fedavg+swa"])
def test_the_trials_of_a_batch_can_share_a_cohort(units: Units, label: str) -> None:
    """Those of methods whose further values are others than the points'."""
    unit = units.of("main", label, 1000)
    results = of_method(units, label, middle)
    for stage in ("points", "further"):
        runs = [with_values(unit.base, r.values) for r in results if r.planned.stage == stage]
        assert len({run.identity for run in runs}) == len(runs)
        assert all(same_cohort(runs[0], run) for run in runs)
