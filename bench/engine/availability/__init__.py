"""Availability: which clients can take part in a round. One kind per module, by name: a class in a new file is a new
kind."""

from typing import Annotated

from pydantic import AfterValidator

from fedflat.bench.engine.availability.always import AlwaysAvailable
from fedflat.bench.engine.availability.base import Availability
from fedflat.bench.input.registry import OneOf, registered

AVAILABILITIES = registered(Availability, "fedflat.bench.engine.availability")

AnyAvailability = Annotated[
    Annotated[Availability, OneOf(AVAILABILITIES.values(), discriminator="name")] | None,
    AfterValidator(lambda given: None if isinstance(given, AlwaysAvailable) else given),
]
"""A kind of availability, or none: clients that are always available are stored as null, so that equal runs have equal
configurations."""
