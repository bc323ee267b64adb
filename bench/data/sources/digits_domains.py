"""scikit-learn's digits in six styles, as domains: real images with real labels that need no download."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedflat.bench.data.dataset import Dataset, Samples
from fedflat.bench.data.sources.base import Facts, Source
from fedflat.bench.data.sources.digits import read_digits
from fedflat.bench.data.sources.held_out import HeldOutDomain
from fedflat.bench.input.errors import unknown
from fedflat.bench.numerics.streams import numpy_stream

Pixels = NDArray[np.float64]
"""Grey images `[n, 8, 8]` from 0 to 16."""

WHITE = 16.0


def _scipy() -> Any:
    from scipy import ndimage  # noqa: PLC0415 - takes a part of a second to import

    return ndimage


def _rotated(x: Pixels) -> Pixels:
    turned: Pixels = _scipy().rotate(x, 40, axes=(2, 1), reshape=False, order=1)
    return turned


def _blurred(x: Pixels) -> Pixels:
    smooth: Pixels = _scipy().uniform_filter(x, size=(1, 3, 3), mode="constant")
    return smooth


def _thick(x: Pixels) -> Pixels:
    dilated: Pixels = _scipy().grey_dilation(x, size=(1, 2, 2))
    return dilated


STYLES: Mapping[str, Callable[[Pixels], Pixels]] = {
    "rotated": _rotated,
    "blurred": _blurred,
    "inverted": lambda x: WHITE - x,
    "coloured": lambda x: x,
    "plain": lambda x: x,
    "thick": _thick,
}
"""How a domain changes grey images. The coloured ones are tinted afterwards, each image with its own colour."""


class DigitsDomains(HeldOutDomain):
    """scikit-learn's digits, divided among domains: rotated, blurred, inverted, coloured, plain and thick digits.

    Each image belongs to one domain, with equal shares of each class. All images have three channels.
    """

    shown_as: ClassVar[str] = "scikit-learn's digits in several styles"
    trained_at_smoke_scale: ClassVar[bool] = True
    name: Literal["digits_domains"] = "digits_domains"
    domains: int = Field(default=len(STYLES), ge=2, le=len(STYLES), description="number of domains: the first ones")

    facts: ClassVar[Facts] = Facts(1498, 299, 10, (3, 8, 8))

    @model_validator(mode="after")
    def _has_test_domain(self) -> "DigitsDomains":
        used = self.known()[: self.domains]
        if self.test_domain not in used:
            raise unknown(f"domain of digits_domains with domains: {self.domains}", self.test_domain, used)
        return self

    @classmethod
    def known(cls) -> tuple[str, ...]:
        """The styles."""
        return tuple(STYLES)

    @property
    def stand_in(self) -> dict[str, Any]:
        """The same data set."""
        return self.model_dump()

    @staticmethod
    def stand_in_for(held_out: int, domains: int) -> dict[str, Any]:
        """The `dataset` that replaces one of at most six domains, whose domain number `held_out` is held out."""
        return {"name": "digits_domains", "domains": domains, "test_domain": DigitsDomains.known()[held_out]}

    @classmethod
    def variants(cls) -> Sequence[Source]:
        """One held-out domain."""
        return [cls.parse({"test_domain": cls.known()[0]})]

    @classmethod
    def overview(cls, root: Path) -> tuple[str, ...]:
        """Texts for a list."""
        return (
            f"1,797 in {len(STYLES)} domains", "3×8×8", "10", "0.3", "ready", "CC BY 4.0", "embedded in scikit-learn",
        )  # fmt: skip

    def check(self, root: Path) -> Iterator[str]:
        """Checks that scikit-learn is installed."""
        self.load(root)
        yield "digits_domains: embedded in scikit-learn, nothing to do"

    def load(self, root: Path = Path()) -> Dataset:
        """Pixels 0..16, normalised by mean and deviation of the training images. No root is needed."""
        grey, labels, position = read_digits()
        groups = position % self.domains
        images = np.empty((len(labels), 3, 8, 8), dtype=np.uint8)
        for number, style in enumerate(self.known()[: self.domains]):
            chosen = groups == number
            styled = np.clip(STYLES[style](grey[chosen].astype(np.float64)), 0, WHITE)[:, None]
            if style == "coloured":
                styled = styled * numpy_stream(0, "digits_domains").uniform(0.2, 1, (len(styled), 3, 1, 1))
            images[chosen] = np.rint(styled)
        whole = Samples(images, labels, groups)
        held_out = groups == self.known().index(self.test_domain)
        train, test = whole[~held_out], whole[held_out]
        pixels = train.images / WHITE
        mean, std = (tuple(f((0, 2, 3)).tolist()) for f in (pixels.mean, pixels.std))
        return Dataset(self.label, train, test, 10, WHITE, mean, std)
