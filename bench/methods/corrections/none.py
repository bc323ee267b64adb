"""No correction: the gradient itself."""

from typing import ClassVar

from fedflat.bench.methods.base import Correction


class NoCorrection(Correction):
    """q = g."""

    name: ClassVar[str] = "none"
    weighted_by_samples: ClassVar[bool] = True
