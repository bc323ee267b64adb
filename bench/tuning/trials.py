"""The trials of a cell: configurations whose values are drawn from the search ranges."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo
from scipy.stats import qmc

from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.experiments.sections.method_choice import MethodConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.swa import SWA
from fedflat.bench.numerics.streams import numpy_stream
from fedflat.bench.tuning.ranges import HYPERPARAMETERS, TRAINING, Ranges

Values = dict[str, Any]
"""Values by place, such as training.lr and hyperparameters.rho."""

RATES = ("training.lr", "training.server_lr")
"""The places whose values are the first two coordinates of a point, in every method."""

COORDINATES = 32
"""Coordinates of the points, also if fewer are used: Sobol's scrambling of a coordinate depends on their number."""

MOST_DRAWS = 10
"""Draws for each trial; equal ones count once, so that a few listed values may give fewer trials."""


@dataclass(frozen=True)
class Trial:
    """One configuration of a cell: its number, its values and its run. Number 0 has the values of the experiment."""

    number: int
    values: Values
    run: RunConfig


def drawn(ranges: Ranges, method: MethodConfig, seed: int) -> Iterator[Values]:
    """Values in the ranges, without end: a scrambled Sobol sequence.

    Methods share the values of the rates, trial by trial, and those of the hyper-parameters with the same position.
    """
    own = [place for place in ranges if place not in RATES]
    coordinate = {place: k for k, place in enumerate((*RATES, *own))}
    points = qmc.Sobol(max(COORDINATES, len(coordinate)), seed=int(numpy_stream(seed, "search").integers(2**63)))
    whole = {place: field_at(method, place).annotation is int for place in ranges}
    while True:
        for point in points.random_base2(4) if points.num_generated == 0 else points.random(points.num_generated):
            yield {place: search.at(point[coordinate[place]], whole=whole[place]) for place, search in ranges.items()}


def trials(base: RunConfig, ranges: Ranges, count: int) -> list[Trial]:
    """The first `count` different trials of a cell, whose run with the experiment's values is `base`.

    There are fewer if the ranges have fewer values. A `UserError` if there is nothing to search, or if the end of a
    range is no valid value.
    """
    if not ranges:
        raise UserError(f"{base.method.recipe.name} has no value to search (allowed: at least one search range)")
    for place, search in ranges.items():
        for value in search.ends:
            try:
                with_values(base, {place: value})
            except UserError as error:
                raise UserError(f"the search range of {place}, {search}: {error}") from None
    found = {base.identity: Trial(0, {place: value_at(base, place) for place in ranges}, base)}
    for values in itertools.islice(drawn(ranges, base.method, base.seed), MOST_DRAWS * count):
        if len(found) == count:
            break
        run = with_values(base, values)
        found.setdefault(run.identity, Trial(len(found), values, run))
    return list(found.values())


def as_trial(run: RunConfig, seed: int, validation: float, evaluated: Sequence[int]) -> RunConfig:
    """The run with another seed, evaluated on held-out images after these rounds, without stored states."""
    evaluation = Evaluation(every=run.training.rounds, also=tuple(evaluated), validation=validation, training_images=1)
    return RunConfig.parse({**run.model_dump(), "seed": seed, "evaluation": evaluation.model_dump()})


def with_values(run: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """The run with these values."""
    data = run.model_dump()
    for place, value in values.items():
        section, name = _section(data, place)
        section[name] = value
    return RunConfig.parse(data)


def value_at(run: RunConfig, place: str) -> Any:
    """The value of a run at a place; None if it has none."""
    section, name = _section(run.model_dump(), place)
    return section.get(name)


def field_at(method: MethodConfig, place: str) -> FieldInfo:
    """The field of a place."""
    if place.startswith(TRAINING):
        return StepSettings.model_fields[place.removeprefix(TRAINING)]
    name = place.removeprefix(HYPERPARAMETERS)
    if name.startswith("swa."):
        return SWA.model_fields[name.removeprefix("swa.")]
    return {**method.recipe.hyperparameters, **method.recipe.components.separate()}[name]


def _section(data: dict[str, Any], place: str) -> tuple[dict[str, Any], str]:
    """The mapping in a run's configuration that has the value of a place, and the value's name there."""
    if place.startswith(TRAINING):
        return data["training"], place.removeprefix(TRAINING)
    hyperparameters, name = data["method"]["hyperparameters"], place.removeprefix(HYPERPARAMETERS)
    return (hyperparameters["swa"], name.removeprefix("swa.")) if name.startswith("swa.") else (hyperparameters, name)
