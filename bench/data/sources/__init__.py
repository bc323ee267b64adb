"""The sources of data sets. Each module registers its sources: a new file is a new data set."""

from collections.abc import Mapping
from typing import Annotated, Any

from bench.data.sources.base import Source
from bench.input.errors import UserError, unknown
from bench.input.registry import OneOf, registered

SOURCES = registered(Source, "bench.data.sources")

AnySource = Annotated[Source, OneOf(SOURCES.values(), discriminator="name")]


def parse_source(dataset: Any) -> Source:
    """The source for the `dataset` of a configuration, which is a name, or a mapping with name and options."""
    if isinstance(dataset, Source):
        return dataset
    fields = dataset if isinstance(dataset, Mapping) else {"name": dataset}
    if "name" not in fields:
        raise UserError(f"dataset has no name (allowed: {', '.join(SOURCES)})")
    name = fields["name"]
    if not isinstance(name, str) or name not in SOURCES:
        raise unknown("dataset", name, SOURCES)
    return SOURCES[name].parse(fields, where=f"dataset {name}")
