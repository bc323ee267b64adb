"""Which classes of pixels the final model confuses: confusion matrices, and the intersection over union per class."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import Analysis
from fedflat.bench.data.dataset import Batches, Subset
from fedflat.bench.metrics.base import confusion
from fedflat.bench.metrics.kinds.miou import iou

Row = tuple[str, str, int, str, float, float]


class Confusion(Analysis):
    """Labelled pixels by true and predicted class, and the intersection over union (IoU) of each class, in percent."""

    name: ClassVar[str] = "confusion"
    columns: ClassVar[tuple[str, ...]] = ("part", "metric", "class", "class_name", "predicted_class", "value")
    of_label_maps: ClassVar[bool | None] = True

    data: Subset = Field(default="test", description="train or test images")

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """Rows with the metric `iou`, one per class, and `pixels`, one per true and predicted class.

        `part` is empty for all images; test subsets have rows of their own. The IoU of a class without labelled pixels
        is missing.
        """
        counts = {part: self._counts(run, images) for part, images in self._parts(run)}
        if len(counts) > 1:
            counts = {"": torch.stack(list(counts.values())).sum(0), **counts}
        names = dict(enumerate(run.config.dataset.class_names))
        rows = [row for part, found in counts.items() for row in _rows(part, found, names)]
        images = f"{self._images(run).samples:,} {'test' if self.data == 'test' else 'training'} images"
        definition = f"labelled pixels of all {images} by class, and IoU in percent"
        return pd.DataFrame(rows, columns=list(self.columns)).assign(definition=definition)

    def _images(self, run: AnalysedRun) -> Batches:
        return run.batches(run.setup.test if self.data == "test" else run.setup.train)

    def _parts(self, run: AnalysedRun) -> Iterator[tuple[str, Batches]]:
        """The images of each test subset, or all images."""
        parts = run.setup.dataset.test_parts if self.data == "test" else {}
        if not parts:
            yield "", self._images(run)
        for part, places in parts.items():
            yield part, run.batches(run.setup.test, torch.from_numpy(np.asarray(places)).to(run.device))

    def _counts(self, run: AnalysedRun, images: Batches) -> Tensor:
        batches = run.progress(images, "confusion: batch")
        return torch.stack([confusion(run.setup.objective.logits(run.w, x), y) for x, y in batches]).sum(0).cpu()


def _rows(part: str, counts: Tensor, names: dict[int, str]) -> Iterator[Row]:
    """The rows of a test subset."""
    for label, ratio in enumerate(iou(counts).tolist()):
        yield part, "iou", label, names.get(label, f"class {label}"), float("nan"), ratio
    for label, of_class in enumerate(counts.tolist()):
        for predicted, pixels in enumerate(of_class):
            yield part, "pixels", label, names.get(label, f"class {label}"), predicted, pixels
