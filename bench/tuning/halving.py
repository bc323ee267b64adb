"""Synchronous successive halving: after each rung, a share of the rounds, the better half of the trials goes on."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class RungStep(NamedTuple):
    """A trial, and the rung up to which it is trained; both are counted from 0. The last rung is that of all rounds."""

    trial: int
    rung: int


def rounds_of_rungs(shares: Sequence[float], rounds: int) -> tuple[int, ...]:
    """The rounds after which trials are compared; the last one is that of all rounds."""
    return (*sorted({math.ceil(share * rounds) for share in shares} - {rounds}), rounds)


def budget(shares: Sequence[float], trials: int, rounds: int) -> float:
    """What a search costs in units of a run of all rounds, if no trial fails."""
    trained, cost, before = trials, 0.0, 0
    for rung in rounds_of_rungs(shares, rounds):
        cost += trained * (rung - before) / rounds
        trained, before = math.ceil(trained / 2), rung
    return cost


def better_half(scores: Mapping[int, float | None]) -> list[int]:
    """The trials that go on, of those with these scores: half of them, rounded up; of equal ones, the earlier ones.

    A trial without a score has failed, and does not go on.
    """
    best = sorted((-score, trial) for trial, score in scores.items() if score is not None)
    return sorted(trial for _, trial in best[: math.ceil(len(scores) / 2)])


def next_step(trials: int, rungs: int, scores: Mapping[RungStep, float | None]) -> RungStep | None:
    """The first step of the search that has not been taken; None if the search has ended.

    A rung begins when all trials of the one before it have been trained.
    """
    steps = (step for steps in enumerated(trials, rungs, scores) for step in steps)
    return next((step for step in steps if step not in scores), None)


def enumerated(trials: int, rungs: int, scores: Mapping[RungStep, float | None]) -> list[list[RungStep]]:
    """The steps of each rung, as far as the scores tell which trials go on."""
    alive: Sequence[int] = range(trials)
    found: list[list[RungStep]] = []
    for rung in range(rungs):
        steps = [RungStep(trial, rung) for trial in alive]
        if not steps:
            break
        found.append(steps)
        if any(step not in scores for step in steps):
            break
        alive = better_half({step.trial: scores[step] for step in steps})
    return found


def winner(scores: Mapping[RungStep, float | None]) -> RungStep | None:
    """The last step of the best trial: of those that came furthest, the one with the highest score; None if all failed.

    Of equal ones, the earlier one.
    """
    failed = {step.trial for step, score in scores.items() if score is None}
    ranked = [
        (-step.rung, -score, step.trial)
        for step, score in scores.items()
        if score is not None and step.trial not in failed
    ]
    if not ranked:
        return None
    rung, _, trial = min(ranked)
    return RungStep(trial, -rung)
