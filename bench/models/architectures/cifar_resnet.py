"""Residual networks for 32×32 images that other federated benchmarks use: ResNet-20 and WRN-16-4."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedflat.bench.input.errors import UserError
from fedflat.bench.models.architectures.fcn import Norm
from fedflat.bench.models.base import ImageShape, MayHaveStatistics, check_size


class CifarResNetChoice(MayHaveStatistics):
    """Normalisation by groups, or by the batch, whose statistics are `buffers`."""

    norm: Literal["group", "batch"] = Field(default="group", description="GroupNorm or BatchNorm")
    groups: Literal[1, 2, 4, 8, 16] | None = Field(
        default=None, examples=[4], description="groups of every GroupNorm; null: 2"
    )

    @property
    def has_statistics(self) -> bool:
        """Whether it has BatchNorm."""
        return self.norm == "batch"

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images of at least 4×4 pixels."""
        check_size(self.label, image_shape, 4)
        self.check_buffers()
        if self.norm == "batch" and self.groups is not None:
            raise UserError(f"model {self.label} has no groups (allowed: norm: group, or groups: null)")
        groups = self.groups or 2
        norm: Norm = nn.BatchNorm2d if self.norm == "batch" else lambda channels: nn.GroupNorm(groups, channels)
        module = self.network(image_shape[0], classes, norm)
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        return module

    @abstractmethod
    def network(self, channels: int, classes: int, norm: Norm) -> nn.Module:
        """The module before its convolutions are initialised."""


class ResNet20Choice(CifarResNetChoice):
    """ResNet-20 (He et al., CVPR 2016, section 4.2): three stages of three blocks; short cuts without parameters.

    269,722 parameters for CIFAR-10.
    """

    name: Literal["resnet20"] = "resnet20"

    def network(self, channels: int, classes: int, norm: Norm) -> nn.Module:
        """See above."""
        stages = _stages(BasicBlock, (16, 32, 64), 3, norm)
        return nn.Sequential(_convolution(channels, 16), norm(16), nn.ReLU(), *stages, *_head(64, classes))


class WRN16x4Choice(CifarResNetChoice):
    """WRN-16-4 (Zagoruyko and Komodakis, BMVC 2016): three stages of two pre-activation blocks of four times the width.

    2,748,890 parameters for CIFAR-10. Without dropout.
    """

    name: Literal["wrn_16_4"] = "wrn_16_4"

    def network(self, channels: int, classes: int, norm: Norm) -> nn.Module:
        """See above."""
        stages = _stages(PreActivationBlock, (64, 128, 256), 2, norm)
        return nn.Sequential(_convolution(channels, 16), *stages, norm(256), nn.ReLU(), *_head(256, classes))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions; the short cut takes every `stride`-th pixel, and zeros for new channels (option A)."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.stride, self.new_channels = stride, outputs - inputs
        self.conv1, self.norm1 = _convolution(inputs, outputs, stride), norm(outputs)
        self.conv2, self.norm2 = _convolution(outputs, outputs), norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, outputs, height / stride, width / stride]` of `[B, inputs, height, width]`."""
        branch = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        before = self.new_channels // 2
        shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.new_channels - before))
        return F.relu(branch + shortcut)


class PreActivationBlock(nn.Module):
    """Norm and ReLU before each of two 3×3 convolutions; a 1×1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.norm1, self.conv1 = norm(inputs), _convolution(inputs, outputs, stride)
        self.norm2, self.conv2 = norm(outputs), _convolution(outputs, outputs)
        self.shortcut = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, outputs, height / stride, width / stride]` of `[B, inputs, height, width]`."""
        active = F.relu(self.norm1(x))
        branch: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return branch + (x if self.shortcut is None else self.shortcut(active))


def _stages(
    block: Callable[[int, int, int, Norm], nn.Module], widths: Sequence[int], blocks: int, norm: Norm
) -> Iterator[nn.Module]:
    """So many blocks for each width, after a layer of 16 channels; the first of a later stage halves the image."""
    inputs = 16
    for width in widths:
        for k in range(blocks):
            yield block(inputs, width, 2 if width != widths[0] and k == 0 else 1, norm)
            inputs = width


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def _head(width: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]
