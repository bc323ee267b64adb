"""Scenes of scikit-learn's digits with labels of all pixels: real images with real labels that need no download."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedflat.bench.data.dataset import Dataset, Samples
from fedflat.bench.data.label_maps import UNLABELLED, LabelMaps, main_classes
from fedflat.bench.data.sources.base import Facts, Source
from fedflat.bench.data.sources.digits import read_digits
from fedflat.bench.numerics.streams import numpy_stream

Colour = tuple[int, int, int]
STYLES: Mapping[str, tuple[Colour, Colour]] = {
    "light": ((20, 20, 20), (235, 235, 235)),
    "red": ((60, 10, 10), (240, 120, 110)),
    "green": ((10, 60, 20), (130, 240, 120)),
    "blue": ((15, 20, 80), (120, 150, 245)),
    "inverted": ((235, 235, 235), (20, 20, 20)),
}
"""By domain, the colours of the background and of the digits."""

SIDE, DIGIT, WHITE = 32, 16, 16
"""Height and width of a scene and of a digit in it, in pixels; the largest value of a stored digit."""

INSIDE, OUTSIDE = 0.5, 0.25
"""The least share of white of a digit's pixels, and the share below which a pixel is background; between: no label."""

TRAINED = len(STYLES) - 1
"""Number of domains with training scenes."""

STAND_IN_CLIENTS = 20
"""Largest number of clients of scenes that stand in for other images: each has about 30, so that few rounds train."""

TRAIN = 600
"""Number of training scenes."""


class DigitScenes(Source):
    """Scenes of two of scikit-learn's digits, with labels of all pixels: background, and the ten digits.

    898 scenes of five domains, which differ in colours: 600 training scenes of four domains, and 298 test scenes, half
    of them of the same domains (part `seen`), half of the fifth one (part `unseen`). Groups are the numbers of domains.
    No digit is in two scenes. The class of a scene is its larger digit. Unclear pixels at the edges of digits have no
    label.
    """

    shown_as: ClassVar[str] = "scenes of scikit-learn's digits"
    trained_at_smoke_scale: ClassVar[bool] = True
    name: Literal["digit_scenes"] = "digit_scenes"
    unseen: Literal["light", "red", "green", "blue", "inverted"] = Field(
        default="blue", description="the domain without training scenes"
    )

    label_maps: ClassVar[bool] = True
    class_names: ClassVar[tuple[str, ...]] = ("background", *(f"digit {digit}" for digit in range(10)))
    facts: ClassVar[Facts] = Facts(TRAIN, 298, 11, (3, SIDE, SIDE))

    @property
    def label(self) -> str:
        """For example digit_scenes-blue."""
        return f"{self.name}-{self.unseen}"

    @property
    def stand_in(self) -> dict[str, Any]:
        """The same data set."""
        return self.model_dump()

    def stand_in_groups(self, partition: Mapping[str, Any], most: int) -> dict[str, Any]:
        """The same one."""
        return dict(partition)

    @staticmethod
    def by_domain(clients: int) -> dict[str, Any]:
        """A partition among about this number of clients, each with scenes of one domain."""
        each = max(1, clients // TRAINED)
        return {"name": "by_group", "clients": TRAINED * each, "clients_per_group": each}

    @classmethod
    def overview(cls, root: Path) -> tuple[str, ...]:
        """Texts for a list."""
        return (*cls.facts.texts(), "ready", "CC BY 4.0", "embedded in scikit-learn")

    def check(self, root: Path) -> Iterator[str]:
        """Checks that scikit-learn is installed."""
        self.load(root)
        yield "digit_scenes: embedded in scikit-learn, nothing to do"

    def load(self, root: Path = Path()) -> Dataset:
        """Pixels 0..255, normalised by mean and deviation of the training images. No root is needed."""
        digits, labels, _ = read_digits()
        stream = numpy_stream(0, "digit_scenes")
        count = len(digits) // 2
        pairs = stream.permutation(len(digits))[: 2 * count].reshape(count, 2)
        ink, maps = np.zeros((count, SIDE, SIDE)), np.zeros((count, SIDE, SIDE), dtype=np.uint8)
        large = _enlarged(digits)
        for scene, pair in enumerate(pairs):
            for half, digit in enumerate(pair):  # one in the left half, one in the right half
                top = int(stream.integers(SIDE - DIGIT + 1))
                left = half * SIDE // 2 + int(stream.integers(SIDE // 2 - DIGIT + 1))
                place = scene, slice(top, top + DIGIT), slice(left, left + DIGIT)
                ink[place] = large[digit]
                maps[place] = _labelled(large[digit], 1 + int(labels[digit]))
        seen_test = TRAIN + (count - TRAIN) // 2
        names = list(STYLES)
        seen = np.array([number for number, name in enumerate(names) if name != self.unseen])
        groups = seen[np.arange(count) % len(seen)]
        groups[seen_test:] = names.index(self.unseen)
        brightness = stream.uniform(0.7, 1, (count, 1, 1, 1))
        ground, digit_colour = (np.array([STYLES[names[g]][part] for g in groups])[..., None, None] for part in (0, 1))
        pixels = brightness * (ground + ink[:, None] * (digit_colour - ground))
        whole = Samples(np.rint(pixels).astype(np.uint8), main_classes(maps, 11, background=0), groups, maps=maps)
        train, test = whole[:TRAIN], whole[TRAIN:]
        mean, std = (tuple((f((0, 2, 3)) / 255).tolist()) for f in (train.images.mean, train.images.std))
        edge = seen_test - TRAIN
        parts = {"seen": np.arange(edge), "unseen": np.arange(edge, len(test))}
        return Dataset(self.label, train, test, 11, 255.0, mean, std, parts)


def _enlarged(digits: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Digits `[n, 8, 8]` as shares of white `[n, 16, 16]`, interpolated linearly."""
    place = np.clip((np.arange(DIGIT) + 0.5) * 8 / DIGIT - 0.5, 0, 7)
    low = np.minimum(place.astype(np.int64), 6)
    weights = np.zeros((DIGIT, 8))
    weights[np.arange(DIGIT), low] = 1 - (place - low)
    weights[np.arange(DIGIT), low + 1] = place - low
    # Not by a matrix product, whose rounding depends on the machine.
    tall = np.stack([(digits * row[None, :, None]).sum(1) for row in weights], axis=1)
    return np.stack([(tall * row).sum(2) for row in weights], axis=2) / WHITE


def _labelled(ink: NDArray[np.float64], label: int) -> LabelMaps:
    """The labels of a digit's pixels."""
    labels = np.full(ink.shape, UNLABELLED, dtype=np.uint8)
    labels[ink >= INSIDE] = label
    labels[ink < OUTSIDE] = 0
    return labels
