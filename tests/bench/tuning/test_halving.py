"""Successive halving: which trials go on, in which order they are trained, and which one wins."""

import itertools

import numpy as np
import pytest

from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.tuning.halving import RungStep, better_half, enumerated, next_step, rounds_of_rungs, winner
from fedflat.bench.tuning.score import evaluated_rounds, score

Scores = dict[RungStep, float | None]


def searched(trials: int, rungs: int, quality: np.ndarray) -> tuple[list[RungStep], Scores]:
    """The steps of a whole search in their order, in which `quality` `[trials, rungs]` is what a step scores."""
    scores: Scores = {}
    while (step := next_step(trials, rungs, scores)) is not None:
        value = quality[step]
        scores[step] = None if np.isnan(value) else float(value)
    return list(scores), scores


@pytest.mark.parametrize(("trials", "counts"), [(16, [16, 8, 4, 2]), (5, [5, 3, 2, 1]), (1, [1, 1, 1, 1])])
def test_the_better_half_goes_on(trials: int, counts: list[int]) -> None:
    quality = np.random.default_rng(0).random((trials, 4))
    steps, scores = searched(trials, 4, quality)
    by_rung = enumerated(trials, 4, scores)
    assert [len(one) for one in by_rung] == counts
    assert steps == [step for one in by_rung for step in one], "a rung begins when the one before it has ended"
    for rung, (here, following) in enumerate(itertools.pairwise(by_rung)):
        going_on = {step.trial for step in following}
        stopped = {step.trial for step in here} - going_on
        assert all(quality[a, rung] >= quality[b, rung] for a in going_on for b in stopped)
    best = winner(scores)
    assert best is not None
    assert quality[best] == max(quality[step] for step in by_rung[-1])


def test_of_equal_trials_the_earlier_ones_go_on() -> None:
    assert better_half({3: 1.0, 1: 1.0, 2: 1.0, 0: 0.5}) == [1, 2]
    _, scores = searched(4, 2, np.ones((4, 2)))
    assert winner(scores) == RungStep(0, 1)


def test_failed_trials_count_and_do_not_go_on() -> None:
    quality = np.array([[np.nan, 0], [np.nan, 0], [np.nan, 0], [0.1, 0.2]])
    steps, scores = searched(4, 2, quality)
    assert steps[4:] == [RungStep(3, 1)]
    assert winner(scores) == RungStep(3, 1)
    late = np.array([[0.9, np.nan], [0.8, np.nan], [0.1, 0.5], [0.2, 0.6]])
    _, scores = searched(4, 2, late)
    assert winner(scores) == RungStep(3, 0), "the best of those that have not failed"
    assert winner(searched(2, 2, np.full((2, 2), np.nan))[1]) is None


def test_rungs_are_shares_of_the_rounds() -> None:
    assert rounds_of_rungs((0.125, 0.25, 0.5), 400) == (50, 100, 200, 400)
    assert rounds_of_rungs((0.125, 0.25, 0.5), 3) == (1, 2, 3)
    assert rounds_of_rungs((0.25,), 1) == (1,)
    assert rounds_of_rungs((), 30) == (30,)


def test_the_score_is_the_reported_value_at_the_same_distances_from_the_rung() -> None:
    evaluation = Evaluation(every=10)
    assert evaluated_rounds("last", evaluation, 400, 50) == [50]
    assert evaluated_rounds("mean_last_3", evaluation, 400, 50) == [30, 40, 50]
    assert evaluated_rounds("mean_last_3", evaluation, 400, 400) == [380, 390, 400]
    assert evaluated_rounds("mean_last_3", evaluation, 400, 15) == [5, 15], "no round before the first one"
    assert evaluated_rounds("mean_last_2", Evaluation(every=100, last=50), 400, 50) == [49, 50]
    assert evaluated_rounds("best", evaluation, 400, 25) == [10, 20, 25]
    rows = [{"validation_accuracy": value} for value in (1.0, 5.0, 3.0)]
    assert score("best", rows, [1, 2, 3]) == 5
    assert score("mean_last_2", rows, [2, 3]) == 4
