"""Online hard example mining (OHEM) for segmentation: the mean over the pixels with the largest losses.

    ℓ_b   = mean of the ⌊share · P⌋ largest pixel losses of image b with P pixels, summed over heads
    F_i   = mean_b ℓ_b

Ignored pixels have the loss zero, as in FedDrive (Fantauzzo et al., 2022), which Caldarola et al. use with share 1/4.
"""

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from fedflat.bench.data.label_maps import has_label_maps
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import Loss
from fedflat.bench.models.network import Network, Variables, mean_of_images, pixel_losses


class HardPixels(Loss):
    """F_i of the hardest pixels of each image. With share 1, ignored pixels count, too."""

    name: ClassVar[str] = "hard_pixels"
    needs_labels: ClassVar[bool] = True
    label_maps: ClassVar[bool | None] = True
    weighted_by_samples: ClassVar[bool] = True

    share: float = Field(default=0.25, gt=0, le=1, description="share of the pixels of an image that count")

    def value(self, model: Network, x: Tensor, y: Tensor, weights: Tensor | None, variables: Variables) -> Tensor:
        """F_i on images x and label maps y `[B, height, width]`."""
        if not has_label_maps(y):
            raise UserError("the loss hard_pixels needs labels of pixels: a data set for segmentation")
        losses = pixel_losses(model(x), y)
        count = max(1, int(self.share * losses.shape[2]))
        hardest = losses.topk(count, dim=2, sorted=False).values
        return mean_of_images(hardest.mean(2).sum(1), weights)
