"""What code about data imports, and may rely on: the base classes of data sets and partitions, and `arrays_of`."""

from fedflat.bench.data.dataset import Dataset
from fedflat.bench.data.items import arrays_of
from fedflat.bench.data.partitions.base import Partition
from fedflat.bench.data.sources.base import Source

__all__ = ["Dataset", "Partition", "Source", "arrays_of"]
