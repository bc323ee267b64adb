"""SVHN (Netzer et al. 2011), from the authors' MATLAB files of cropped digits."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from fedflat.bench.data.cache import in_chunks
from fedflat.bench.data.dataset import Samples, Subset
from fedflat.bench.data.origin import File, Origin
from fedflat.bench.data.sources.base import Facts, Published
from fedflat.bench.input.errors import UserError

URL = "http://ufldl.stanford.edu/housenumbers"


class Svhn(Published):
    """SVHN, cropped: 99,289 photographs of digits of house numbers, 32×32 pixels, in 10 classes."""

    shown_as: ClassVar[str] = "SVHN"
    name: Literal["svhn"] = "svhn"

    facts: ClassVar[Facts] = Facts(73_257, 26_032, 10, (3, 32, 32))
    origin: ClassVar[Origin] = Origin(
        f"{URL}/",
        "non-commercial use; cite Netzer et al. 2011",
        (
            File("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", f"{URL}/train_32x32.mat"),
            File("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", f"{URL}/test_32x32.mat"),
        ),
    )

    def chunks(self, subset: Subset, root: Path) -> Iterator[Samples]:
        """X is `[32, 32, 3, n]`; y is `[n, 1]`, where 10 means the digit 0."""
        from scipy.io import loadmat  # noqa: PLC0415 - takes a while to import
        from scipy.io.matlab import MatReadError  # noqa: PLC0415

        file = self.origin.verify(self.name, root, self.origin.members[("train", "test").index(subset)])
        try:
            content = loadmat(file, variable_names=["X", "y"])
            images, labels = content["X"], content["y"].astype(np.int64).ravel()
        except (MatReadError, ValueError, KeyError) as error:
            raise UserError(f"'{file}' is not a MATLAB file of cropped digits: {error}") from None
        labels[labels == 10] = 0
        yield from in_chunks(Samples(images.transpose(3, 2, 0, 1), labels))
