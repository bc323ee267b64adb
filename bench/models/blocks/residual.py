"""torchvision's ResNet-18 with a choice of first layer and normalisation, and with accessible feature levels."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from fedflat.bench.host.torchvision_compat import import_torchvision

import_torchvision()
from torchvision.models.resnet import BasicBlock, ResNet  # noqa: E402 - fails unless torchvision is imported as above


class Sum(nn.Module):
    """Branch plus short cut. It is a module, because its output is a feature level."""

    def forward(self, branch: Tensor, shortcut: Tensor) -> Tensor:
        """Both `[B, channels, height, width]`."""
        return branch + shortcut


class Block(BasicBlock):  # type: ignore[misc] # torchvision is not typed
    """torchvision's block, with a ReLU that does not overwrite the sum before it."""

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__(inplanes, planes, stride, downsample, groups, base_width, dilation, norm_layer)
        self.sum = Sum()
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """`[B, planes, height / stride, width / stride]` of `[B, inplanes, height, width]`."""
        branch = self.relu(self.bn1(self.conv1(x)))
        branch = self.bn2(self.conv2(branch))
        output: Tensor = self.relu(self.sum(branch, x if self.downsample is None else self.downsample(x)))
        return output


class ResNet18(ResNet):  # type: ignore[misc] # likewise
    """Two blocks in each of four stages; `norm(channels)` returns a normalisation layer.

    All weights are initialised as in torchvision, also those of a different first layer.
    """

    def __init__(
        self, channels: int, classes: int, stem: Literal["imagenet", "cifar"], norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__(Block, [2, 2, 2, 2], num_classes=classes, norm_layer=norm)
        self.relu = nn.ReLU()  # torchvision's would overwrite the first feature level
        kernel, stride = (7, 2) if stem == "imagenet" else (3, 1)
        if stem != "imagenet":
            self.maxpool = nn.Identity()
        if stem != "imagenet" or channels != 3:
            self.conv1 = nn.Conv2d(channels, 64, kernel, stride, padding=kernel // 2, bias=False)
            nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")

    def feature_levels(self) -> list[nn.Module]:
        """FedRCL's feature levels: the first norm and the four stages, each before its last ReLU."""
        return [self.bn1, *(stage[-1].sum for stage in (self.layer1, self.layer2, self.layer3, self.layer4))]


def without_norm(channels: int, classes: int) -> ResNet18:
    """The network of FedGF's appendix. Its convolutions are initialised as in nn.Conv2d.

    torchvision's initialisation presumes a norm after each convolution; without norms, the variance would double in
    every block.
    """
    model = ResNet18(channels, classes, "cifar", lambda width: nn.Identity())
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.reset_parameters()
    return model
