"""Expected calibration error (Guo et al. 2017): how far confidence is from accuracy."""

import torch
from torch import Tensor

from fedflat.bench.metrics.base import OfSamples

BINS = 15


class CalibrationError(OfSamples):
    """Σ_b n_b/n |accuracy_b − confidence_b|, over 15 bins of equal width of the highest probability."""

    name = "calibration_error"
    title = "expected calibration error"
    better = "lower"
    unit = "%"

    def of(self, scores: Tensor, y: Tensor) -> float:
        """The error in percent."""
        confidence, predicted = scores.double().softmax(1).max(1)
        bins = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
        gaps = torch.zeros(BINS, dtype=torch.float64, device=y.device)
        gaps.index_add_(0, bins, (predicted == y).double() - confidence)
        return 100 * float(gaps.abs().sum()) / len(y)
