"""How the training images are split over clients. Each partition is one entry of a configuration's `partition`."""

from typing import Annotated

from pydantic import Field

from bench.data.partitions.base import Indices, Partition, partition_hash
from bench.data.partitions.by_group import ByGroup
from bench.data.partitions.dirichlet import Dirichlet
from bench.data.partitions.even import IID, Centralized
from bench.data.partitions.from_file import FromFile
from bench.data.partitions.lda import LDA
from bench.data.partitions.pam import PAM
from bench.data.partitions.pathological import Pathological

AnyPartition = Annotated[
    IID | Centralized | Dirichlet | Pathological | LDA | PAM | FromFile | ByGroup, Field(discriminator="name")
]

__all__ = [
    "IID",
    "LDA",
    "PAM",
    "AnyPartition",
    "ByGroup",
    "Centralized",
    "Dirichlet",
    "FromFile",
    "Indices",
    "Partition",
    "Pathological",
    "partition_hash",
]
