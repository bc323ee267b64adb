"""torchvision's MobileNetV2 for any number of channels, with accessible feature levels."""

from collections.abc import Callable

from torch import nn

from fedflat.bench.host.torchvision_compat import import_torchvision

import_torchvision()
from torchvision.models.mobilenetv2 import MobileNetV2 as TorchvisionMobileNetV2  # noqa: E402 - after the import above

LAST_BLOCKS = (1, 3, 6, 10, 13, 16, 17)
"""The last block of each of the seven stages."""


class MobileNetV2(TorchvisionMobileNetV2):  # type: ignore[misc] # torchvision is not typed
    """Width 1; `norm(channels)` returns a normalisation layer. Initialised as in torchvision."""

    def __init__(self, channels: int, classes: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__(num_classes=classes, norm_layer=norm, dropout=0.0)
        if channels != 3:
            first = nn.Conv2d(channels, 32, 3, 2, padding=1, bias=False)
            nn.init.kaiming_normal_(first.weight, mode="fan_out")
            self.features[0][0] = first

    def feature_levels(self) -> list[nn.Module]:
        """FedRCL's feature levels: the seven stages, which have no activation at their ends."""
        return [self.features[index] for index in LAST_BLOCKS]
