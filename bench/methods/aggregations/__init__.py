"""Aggregation weights of the active clients. A module registers its rule: a new file is a new rule."""

from typing import TYPE_CHECKING, Literal

from fedflat.bench.input.registry import registered
from fedflat.bench.methods.aggregations.base import AggregationRule

AGGREGATIONS: dict[str, type[AggregationRule]] = registered(AggregationRule, __name__)

if TYPE_CHECKING:
    Aggregation = str
else:
    Aggregation = Literal[tuple(AGGREGATIONS)]  # known at run time only
