"""The sources of data sets. Each module registers its sources: a new file is a new data set."""

from collections.abc import Mapping
from typing import Annotated, Any

from fedflat.bench.code.named_code import parse_reference
from fedflat.bench.data.sources.arrays import ArrayFile, ArrayFunction
from fedflat.bench.data.sources.base import Source
from fedflat.bench.data.sources.table import ENDINGS, TableFile
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.registry import OneOf, registered

SOURCES = registered(Source, "fedflat.bench.data.sources")

FILE, FUNCTION, TABLE = (source.model_fields["name"].default for source in (ArrayFile, ArrayFunction, TableFile))

SUFFIX = ".npz"

AnySource = Annotated[Source, OneOf(SOURCES.values(), discriminator="name")]


def parse_source(dataset: Any) -> Source:
    """The source for the `dataset` of a configuration.

    Accepted: a name, or `data.npz`, `file.py:function` or `module:function`, alone or as the name in a mapping with
    options; `data.csv` and `data.parquet` as the name in a mapping.
    """
    if isinstance(dataset, Source):
        return dataset
    fields = _with_reference(dataset if isinstance(dataset, Mapping) else {"name": dataset})
    if "name" not in fields:
        raise UserError(f"dataset has no name (allowed: {', '.join(SOURCES)})")
    name = fields["name"]
    if not isinstance(name, str) or name not in SOURCES:
        raise unknown("dataset", name, SOURCES)
    return SOURCES[name].parse(fields, where=f"dataset {name}")


def referenced(dataset: Any) -> Any:
    """The `dataset` of a configuration, with the fields of user-defined data instead of their short forms."""
    if isinstance(dataset, str) and (":" in dataset or dataset.endswith((SUFFIX, *ENDINGS))):
        return _with_reference({"name": dataset})
    return _with_reference(dataset) if isinstance(dataset, Mapping) else dataset


def _with_reference(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    name = fields.get("name")
    if isinstance(name, str) and name.endswith(SUFFIX):
        return {**fields, "name": FILE, "file": name}
    if isinstance(name, str) and name.endswith(ENDINGS):
        return {**fields, "name": TABLE, "file": name}
    if isinstance(name, str) and ":" in name:
        return {**fields, "name": FUNCTION, **parse_reference(name, ArrayFunction.noun)}
    return {"name": FUNCTION, **fields} if "function" in fields else fields
