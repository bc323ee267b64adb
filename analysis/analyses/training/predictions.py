"""Predicted classes of all pixels of a few test images, with the images and their labels."""

import io
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field
from torch import Tensor

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import OfOneSeed
from fedflat.bench.data.dataset import Dataset
from fedflat.bench.data.label_maps import IGNORED, UNLABELLED
from fedflat.bench.input.bounds import Count

Pixels = NDArray[np.uint8]
"""Classes `[height, width]`, or colours `[height, width, 3]`."""


class Predictions(OfOneSeed):
    """Test images, their label maps, and the classes that the final model predicts, each as a PNG file.

    A pixel of the last two is the number of its class; 255: no class.
    """

    name: ClassVar[str] = "predictions"
    columns: ClassVar[tuple[str, ...]] = ("part", "image", "picture", "labels", "predicted")
    pictures: ClassVar[tuple[str, ...]] = ("picture", "labels", "predicted")
    of_label_maps: ClassVar[bool | None] = True

    images: Count = Field(default=4, description="number of test images, shared equally by the test subsets")
    side: Count = Field(default=256, description="larger images are made smaller: the most pixels of a side")

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per image: its test subset (empty if there are none), its position among the test
        images, and three PNG files."""
        data, w, rows = run.setup.test, run.w, []
        for part, image in self._chosen(run.setup.dataset):
            x, y = data.batch(torch.tensor([image], device=run.device))
            stored = (x / data.factor + data.shift)[0] / run.setup.dataset.scale
            predicted = run.setup.objective.logits(w, x)[0].argmax(0)
            labels = y[0].masked_fill(y[0] == IGNORED, UNLABELLED)
            picture = self._file(_colours(stored), Image.Resampling.BOX)
            rows.append((part, image, picture, self._file(_numbers(labels)), self._file(_numbers(predicted))))
        definition = f"{len(rows)} of {len(data)} test images, at equal distances in the stored order of each part"
        return pd.DataFrame(rows, columns=list(self.columns)).assign(definition=definition)

    def _chosen(self, dataset: Dataset) -> list[tuple[str, int]]:
        """The parts and the positions of the images, at equal distances in each part."""
        parts = dataset.test_parts or {"": np.arange(len(dataset.test))}
        found = []
        for number, (part, places) in enumerate(parts.items()):
            count = min((self.images + len(parts) - 1 - number) // len(parts), len(places))
            found += [(part, int(places[(2 * k + 1) * len(places) // (2 * count)])) for k in range(count)]
        return found

    def _file(self, pixels: Pixels, resampling: Image.Resampling = Image.Resampling.NEAREST) -> bytes:
        """Pixels as a PNG file, made smaller if they have a longer side."""
        image, file = Image.fromarray(pixels), io.BytesIO()
        image.thumbnail((self.side, self.side), resampling)
        image.save(file, format="png", optimize=True)
        return file.getvalue()


def pixels(file: bytes) -> Pixels:
    """The pixels of a PNG file."""
    return np.asarray(Image.open(io.BytesIO(file)))


def _colours(image: Tensor) -> Pixels:
    """Colours of an image `[channels, height, width]` with values from 0 to 1; with fewer than three channels, grey."""
    shown = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    return _numbers((255 * shown).round().clamp(0, 255).permute(1, 2, 0))


def _numbers(values: Tensor) -> Pixels:
    found: Pixels = values.to(torch.uint8).cpu().numpy()
    return found
