"""Partitions of the training images over clients. A module registers its partitions: a new file is a new partition."""

from typing import Annotated

from bench.data.partitions.base import Partition
from bench.input.registry import OneOf, registered

PARTITIONS = registered(Partition, "bench.data.partitions")

AnyPartition = Annotated[Partition, OneOf(PARTITIONS.values(), discriminator="name")]
