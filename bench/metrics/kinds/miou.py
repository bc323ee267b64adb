"""Mean intersection over union, the usual score of semantic segmentation."""

import torch
from torch import Tensor

from fedflat.bench.metrics.base import OfConfusion


def iou(counts: Tensor) -> Tensor:
    """The intersection over union of each class `[C]` in percent; NaN for classes without labelled pixels."""
    right, labelled, predicted = counts.diagonal(), counts.sum(1), counts.sum(0)
    ratios = 100 * right.double() / (labelled + predicted - right)
    return torch.where(labelled > 0, ratios, torch.nan)


class MeanIoU(OfConfusion):
    """The mean IoU of the classes with labelled pixels; NaN if there are none."""

    name = "miou"
    title = "mIoU"
    plural = "mIoUs"
    better = "higher"
    unit = "%"
    order = 2
    label_maps = True
    in_every_run = True

    def of(self, counts: Tensor) -> float:
        """The mean."""
        return float(iou(counts).nanmean())
