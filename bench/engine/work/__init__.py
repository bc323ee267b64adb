"""Work: how much of their local training the clients do in a round. One kind per module, by name: a class in a new file
is a new kind."""

from typing import Annotated, Any

from pydantic import AfterValidator

from fedflat.bench.engine.work.base import Work
from fedflat.bench.engine.work.full import FullWork
from fedflat.bench.input.registry import OneOf, parse_named, registered

WORKS = registered(Work, "fedflat.bench.engine.work")

AnyWork = Annotated[
    Annotated[Work, OneOf(WORKS.values(), discriminator="name")] | None,
    AfterValidator(lambda work: None if isinstance(work, FullWork) else work),
]
"""A kind of work, or none: that of all clients in full is stored as null, so that equal runs have equal
configurations."""


EXAMPLE = '{"name": "stragglers", "share": 0.5}'


def parse_work(options: Any) -> Work | None:
    """The work with these options, `name` among them; a `UserError` if they are wrong."""
    return None if options is None else parse_named(WORKS, "work", options, "work", EXAMPLE)
