"""Schedules over rounds, one per module, by name: a class in a new file is a new schedule."""

import functools
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator

from fedflat.bench.input.registry import OneOf, parse_named, registered
from fedflat.bench.methods.schedules.base import Schedule
from fedflat.bench.methods.schedules.decays.constant import Constant

SCHEDULES = registered(Schedule, "fedflat.bench.methods.schedules")

AnySchedule = Annotated[
    Annotated[Schedule, OneOf(SCHEDULES.values(), discriminator="name")] | None,
    AfterValidator(lambda schedule: None if isinstance(schedule, Constant) else schedule),
]
"""A schedule, or none: the constant one is stored as null, so that equal runs have equal configurations."""


def parse_schedule(options: Any, where: str) -> Schedule:
    """The schedule with these options, `name` among them; a `UserError` that begins with `where`."""
    return parse_named(SCHEDULES, f"schedule in {where}", options, where, "{name: cosine}")


@functools.lru_cache(maxsize=32)
def factors(schedule: Schedule, rounds: int) -> tuple[float, ...]:
    """The factors of all rounds."""
    return tuple(schedule.factor(t, rounds) for t in range(rounds))


def extreme_rounds(values: Sequence[float]) -> list[int]:
    """The rounds with the smallest and the largest of these values."""
    return [min(range(len(values)), key=values.__getitem__), max(range(len(values)), key=values.__getitem__)]
