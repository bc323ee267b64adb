"""A network as a function of its parameters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fedflat.bench.data.label_maps import IGNORED, has_label_maps
from fedflat.bench.input.errors import UserError, first_few
from fedflat.bench.models.dropout import Draws
from fedflat.bench.models.frozen_parts import frozen_parts, trained_buffers
from fedflat.bench.numerics.flat import FlatLayout
from fedflat.bench.numerics.precision import Precision, autocast


@dataclass(frozen=True)
class Network:
    """A module with given parameters (None: those of the module), as it is passed to losses."""

    module: nn.Module
    parameters: Mapping[str, Tensor] | None = None
    precision: Precision = "fp32"
    layout: FlatLayout | None = None
    """The places of the parameters in the flat vector; None only where no loss needs them."""
    draws: Draws | None = None
    """Random numbers of dropout, the same in each forward pass."""

    def at(self, w: Tensor) -> "Network":
        """The same network with the parameters of another flat vector w `[P]`, which leaves buffers as they are."""
        if self.layout is None:
            raise UserError("this network has no layout of its parameters")
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        return replace(self, parameters={**self.layout.split(w), **buffers})

    def __call__(self, x: Tensor) -> Tensor:
        """Class scores `[B, C]` of inputs x `[B, ...]`, in the number format of x, whatever the precision is.

        Of whole numbers, such as token ids: in float32 at least.
        """
        if self.draws is not None:
            self.draws.restart()
        with autocast(self.precision, x.device):
            scores: Tensor = (
                self.module(x) if self.parameters is None else functional_call(self.module, dict(self.parameters), (x,))
            )
        return scores.to(x.dtype if x.is_floating_point() else torch.promote_types(scores.dtype, torch.float32))


def has_buffers(module: nn.Module) -> bool:
    """Whether a module has buffers, such as the statistics of BatchNorm, outside of its frozen parts."""
    return bool(trained_buffers(module, frozen_parts(module)))


def has_auxiliary_heads(module: nn.Module) -> bool:
    """Whether a module lists heads, in `auxiliary`, whose scores it returns in training only."""
    return bool(getattr(module, "auxiliary", ()))


def check_used(kind: str, names: Iterable[str], gradients: Iterable[Tensor | None]) -> None:
    """A `UserError` with the names of tensors of this kind without a gradient: the loss does not depend on them."""
    unused = [name for name, gradient in zip(names, gradients, strict=True) if gradient is None]
    if unused:
        raise UserError(f"the loss does not depend on these {kind}: {first_few(unused)}")


Variables = Mapping[str, Tensor]
"""Tensors by name on which a loss depends in addition to the model's parameters."""


def _check_kind(scores: Tensor, *, of_pixels: bool) -> None:
    """A `UserError` if scores are for images, but labels for pixels, or vice versa."""
    if (scores.ndim > 3) != of_pixels:
        given, needed = ("one for each image", "of pixels") if of_pixels else ("one for each pixel", "of images")
        raise UserError(f"the model's scores are {given}, but the data set has labels {needed}: use another model")


def cross_entropy(scores: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean cross-entropy of scores `[B, C]`, or the sum weighted by `weights` `[B]`.

    y are labels `[B]`, or class probabilities `[B, C]`; or label maps `[B, height, width]`, with scores of every pixel
    as in `pixel_losses`: the loss of an image is then the mean over its labelled pixels, summed over heads.
    """
    if has_label_maps(y):
        return mean_of_images(image_losses(scores, y), weights)
    _check_kind(scores, of_pixels=False)
    if weights is None:
        return F.cross_entropy(scores, y)
    return (F.cross_entropy(scores, y, reduction="none") * weights).sum()


def cross_entropy_sum(scores: Tensor, y: Tensor) -> Tensor:
    """The sum of the cross-entropies of all samples; arguments as for `cross_entropy`."""
    if has_label_maps(y):
        return image_losses(scores, y).sum()
    _check_kind(scores, of_pixels=False)
    return F.cross_entropy(scores, y, reduction="sum")


def pixel_losses(scores: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each pixel `[B, heads, pixels]`; zero for ignored ones.

    Scores `[B, C, height, width]`, or `[B, C, heads, height, width]` of several heads; label maps y `[B, height,
    width]`.
    """
    _check_kind(scores, of_pixels=True)
    by_head = scores if scores.ndim == y.ndim + 2 else scores.unsqueeze(2)
    labels = y.unsqueeze(1).expand(-1, by_head.shape[2], -1, -1)
    return F.cross_entropy(by_head, labels, reduction="none", ignore_index=IGNORED).flatten(2)


def image_losses(scores: Tensor, y: Tensor) -> Tensor:
    """The loss `[B]` of each image: the mean over its labelled pixels, summed over heads; zero if none is labelled."""
    labelled = (y != IGNORED).flatten(1).sum(1).clamp(min=1)
    return pixel_losses(scores, y).sum((1, 2)) / labelled


def mean_of_images(losses: Tensor, weights: Tensor | None) -> Tensor:
    """The mean of losses `[B]`, or the sum weighted by `weights` `[B]`."""
    return losses.mean() if weights is None else (losses * weights).sum()
