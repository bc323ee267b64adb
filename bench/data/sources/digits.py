"""scikit-learn's digits: real images that need no download."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedflat.bench.data.dataset import Dataset, Labels, Samples
from fedflat.bench.data.sources.base import Facts, Source
from fedflat.bench.input.errors import UserError


class Digits(Source):
    """scikit-learn's digits: 1,797 real 8×8 images in 10 classes, embedded in the library (no download).

    Every second image of each class, in the stored order, is a test image (896 of 1,797); the rest are training images.
    """

    shown_as: ClassVar[str] = "scikit-learn's digits"
    trained_at_smoke_scale: ClassVar[bool] = True
    name: Literal["digits"] = "digits"

    facts: ClassVar[Facts] = Facts(901, 896, 10, (1, 8, 8))

    @classmethod
    def overview(cls, root: Path) -> tuple[str, ...]:
        """Texts for a list."""
        return (*cls.facts.texts(), "ready", "CC BY 4.0", "embedded in scikit-learn")

    def check(self, root: Path) -> Iterator[str]:
        """Checks that scikit-learn is installed."""
        self.load(root)
        yield "digits: embedded in scikit-learn, nothing to do"

    def load(self, root: Path = Path()) -> Dataset:
        """Pixels 0..16 as stored, normalised by the training images' mean and deviation. No root is needed."""
        grey, labels, position = read_digits()
        test = position % 2 == 1
        train, held_out = (Samples(grey[chosen, None], labels[chosen]) for chosen in (~test, test))
        return Dataset("digits", train, held_out, 10, 16.0, (0.3048,), (0.3761,))


def read_digits() -> tuple[NDArray[np.uint8], Labels, Labels]:
    """All images `[n, 8, 8]` in their stored order, their labels `[n]`, and the position of each in its class `[n]`."""
    # The file of sklearn.datasets.load_digits, read without importing scikit-learn, which takes a second.
    package = find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise UserError("data set digits is embedded in scikit-learn, which is not installed")
    file = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    images = table[:, :64].astype(np.uint8).reshape(-1, 8, 8)
    labels = np.ascontiguousarray(table[:, 64])
    position_in_class = np.empty(len(labels), dtype=np.int64)
    for c in range(10):
        members = np.flatnonzero(labels == c)
        position_in_class[members] = np.arange(len(members))
    return images, labels, position_in_class
