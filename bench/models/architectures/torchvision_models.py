"""Any classifier of torchvision, with its first layer and its head fitted to the data."""

import functools
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import nn
from torch.overrides import TorchFunctionMode

from fedflat.bench.host.torchvision_compat import import_torchvision
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.models.base import ImageShape, MayHaveStatistics, check_size
from fedflat.bench.models.dropout import Dropout, StochasticDepth


class TorchvisionChoice(MayHaveStatistics):
    """torchvision's classifier `arch` with random weights, drawn as torchvision draws them.

    The first convolution takes the channels of the data, and is drawn anew if these are not three. Dropout and
    stochastic depth have the rates of the architecture, and repeatable masks. Auxiliary heads (googlenet, inception_v3)
    are left out.
    """

    name: Literal["torchvision"] = "torchvision"
    arch: str = Field(examples=["resnet50"], description="the name of torchvision's builder, such as resnet50")

    @property
    def has_statistics(self) -> bool:
        """Whether the architecture has BatchNorm, or other buffers."""
        return _has_buffers(self.arch)

    def build(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """A module for images that the architecture can take; transformers need square ones."""
        if self.arch not in classifiers():
            raise unknown("classifier of torchvision", self.arch, classifiers())
        self.check_buffers()
        check_size(self.label, image_shape)
        channels, height, width = image_shape
        if self.arch.startswith("vit_") and height != width:
            raise UserError(f"model {self.label} needs square images, not {height}×{width}")
        try:
            module: nn.Module = _models().get_model(
                self.arch, **_options(self.arch, height, width), num_classes=classes
            )
        except (AssertionError, ValueError) as error:  # images that a transformer cannot divide into patches
            raise _unfit(self.label, image_shape, error) from None
        _fit_channels(module, channels)
        _make_repeatable(module)
        return module

    def _on_meta(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """The module without weights, after a forward pass, which shows whether the images are large enough."""
        with _WithoutWeights() if self.arch.startswith("regnet_") else torch.device("meta"):
            module = self.build(image_shape, classes).to("meta")
        try:
            with torch.no_grad():
                module.eval()(torch.zeros(2, *image_shape, device="meta"))
        except (RuntimeError, AssertionError, ValueError) as error:
            raise _unfit(self.label, image_shape, error) from None
        return module


class _WithoutWeights(TorchFunctionMode):
    """In the block, weights are created without memory. A RegNet reads other tensors to be built, so these exist."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        return func(*args, **(options | {"device": "meta"} if func is torch.empty else options))


@functools.cache
def classifiers() -> tuple[str, ...]:
    """The names of torchvision's classifiers. The first call imports torchvision, which takes seconds."""
    return tuple(_models().list_models(module=_models()))


def _models() -> Any:
    return import_torchvision().models


def _options(arch: str, height: int, width: int) -> dict[str, Any]:
    """Options of a builder that depend on the size of the images, or leave out what no other classifier has."""
    if arch.startswith("vit_"):
        return {"image_size": height}
    if arch.startswith("maxvit_"):
        return {"input_size": (height, width)}
    if arch in ("googlenet", "inception_v3"):
        return {"aux_logits": False, "init_weights": True}
    return {}


@functools.cache
def _has_buffers(arch: str) -> bool:
    if arch not in classifiers():  # reported when it is built
        return False
    if arch.startswith("regnet_"):
        return True
    with torch.device("meta"):
        return next(_models().get_model(arch, **_options(arch, 224, 224)).buffers(), None) is not None


def _unfit(label: str, image_shape: ImageShape, error: Exception) -> UserError:
    reason = " ".join(str(error).split())
    return UserError(f"model {label} does not take images of {'×'.join(map(str, image_shape))}: {reason}")


def _fit_channels(module: nn.Module, channels: int) -> None:
    """Replace the first convolution by one for this number of channels, if it has another one."""
    name, first = next((name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Conv2d))
    if first.in_channels == channels:
        return
    sizes: dict[str, Any] = {name: getattr(first, name) for name in ("kernel_size", "stride", "padding")}
    fitted = nn.Conv2d(channels, first.out_channels, bias=first.bias is not None, **sizes)
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, fitted)


def _make_repeatable(module: nn.Module) -> None:
    """Replace torch's dropout, and torchvision's stochastic depth, by layers whose masks repeat."""
    depth = import_torchvision().ops.StochasticDepth
    for layer in module.modules():
        for name, child in layer.named_children():
            if isinstance(child, nn.Dropout):
                setattr(layer, name, Dropout(child.p))
            elif isinstance(child, depth):
                setattr(layer, name, StochasticDepth(child.p))
