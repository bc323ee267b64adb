"""Partitions of the training images over clients. A module registers its partitions: a new file is a new partition."""

from collections.abc import Mapping
from typing import Annotated, Any

from fedflat.bench.data.partitions.base import Partition
from fedflat.bench.input.errors import unknown
from fedflat.bench.input.registry import OneOf, registered

PARTITIONS = registered(Partition, "fedflat.bench.data.partitions")

AnyPartition = Annotated[Partition, OneOf(PARTITIONS.values(), discriminator="name")]


def parse_partition(options: Mapping[str, Any], where: str) -> Partition:
    """The partition with these options, `name` among them; a `UserError` that begins with `where`."""
    name = options.get("name")
    if not isinstance(name, str) or name not in PARTITIONS:
        raise unknown(f"partition in {where}", str(name), PARTITIONS)
    return PARTITIONS[name].parse(options, f"{where}: {name}")
