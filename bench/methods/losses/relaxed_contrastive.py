"""FedRCL: cross-entropy plus a relaxed contrastive loss on several feature levels (Seo et al., CVPR 2024).

    F_i = ℓ + mean over levels of (weight_scl · mean_a SCL_a + weight_pen · mean_a PEN_a)

    s_ab    cosine similarity of the features of samples a and b of the mini-batch
    T       the temperature
    P_a     the smallest s_ab over b of a's class, including a itself
    Neg_a   the k_neg largest s_ab over the other classes
    SCL_a = −log( e^{P_a/T} / (e^{P_a/T} + Σ_{n∈Neg_a} e^{n/T}) )
    r_a     the smallest s_ab over b ≠ a of a's class; −1 if there is none, or if it is below the threshold
    PEN_a = log(1 + e^{(r_a − 1)/T})                       (k_pos > 1: the sum over the k_pos smallest)

This is the loss of the released code. The paper penalises all pairs of one class above the threshold.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, ClassVar, Protocol, runtime_checkable

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import Loss
from fedflat.bench.methods.marks import Neutral, Search
from fedflat.bench.models.network import Network, Variables, cross_entropy


@runtime_checkable
class HasFeatureLevels(Protocol):
    """A model that lists the modules whose outputs are its feature levels."""

    def feature_levels(self) -> list[nn.Module]:
        """The modules, in order from the input to the output."""
        ...


class RelaxedContrastive(Loss):
    """ℓ plus the contrastive term and the penalty. For a model without hidden layers the loss is ℓ."""

    name: ClassVar[str] = "relaxed_contrastive"
    needs_labels: ClassVar[bool] = True
    label_maps: ClassVar[bool | None] = False
    separable: ClassVar[bool] = False

    temperature: float = Field(default=0.05, gt=0, description="T, which divides similarities")
    threshold: float = Field(default=0.7, ge=-1, le=1, description="smallest similarity of a pair that is penalised")
    weight_scl: Annotated[float, Neutral(0, given={"weight_pen": 0}), Search(low=0.1, high=1, log=True)] = Field(
        default=1.0, ge=0, description="weight of the contrastive term"
    )
    weight_pen: Annotated[float, Neutral(0, given={"weight_scl": 0}), Search(low=0.1, high=1, log=True)] = Field(
        default=1.0, ge=0, description="weight of the penalty"
    )
    k_neg: Count = Field(default=2, description="number of negatives per anchor")
    k_pos: Count = Field(default=1, description="number of positives per anchor in the penalty")

    def value(self, model: Network, x: Tensor, y: Tensor, weights: Tensor | None, variables: Variables) -> Tensor:
        """ℓ plus both terms, with equal weights of all samples."""
        with _features(model.module) as levels:
            loss = cross_entropy(model(x), y)
        if levels:
            loss = loss + torch.stack([self.level_loss(features.to(x.dtype), y) for features in levels]).mean()
        return loss

    def level_loss(self, features: Tensor, y: Tensor) -> Tensor:
        """Both terms of one level, given its features `[B, ...]`; feature maps are averaged over their pixels."""
        z = F.normalize(features.mean(dim=tuple(range(2, features.ndim))) if features.ndim > 2 else features, dim=1)
        similar = z @ z.T
        same = y[:, None] == y[None, :]
        itself = torch.eye(len(y), dtype=torch.bool, device=y.device)

        positive = similar.masked_fill(~same, math.inf).amin(1)
        negatives = similar.masked_fill(same, -math.inf).topk(min(self.k_neg, len(y)), dim=1).values
        scaled = torch.cat([positive[:, None], negatives], dim=1) / self.temperature
        contrastive = torch.logsumexp(scaled, dim=1) - scaled[:, 0]

        others = similar.masked_fill(~same | itself, math.inf)
        least = others.topk(min(self.k_pos, len(y)), dim=1, largest=False).values
        exists = least.isfinite()
        exists[:, 0] = True  # an anchor without a pair contributes one constant term
        least = torch.where((least < self.threshold) | least.isinf(), -torch.ones_like(least), least)
        scaled_pairs = ((least - 1) / self.temperature).masked_fill(~exists, -math.inf)
        exponents = torch.cat([torch.zeros_like(least[:, :1]), scaled_pairs], dim=1)
        penalty = torch.logsumexp(exponents, dim=1)
        return self.weight_scl * contrastive.mean() + self.weight_pen * penalty.mean()


def feature_levels(module: nn.Module) -> list[nn.Module]:
    """The modules whose outputs are feature levels: those that the model lists, or else its hidden linear layers.

    Raises `UserError` for models with other layers that list none, because the method would silently be FedAvg.
    """
    if isinstance(module, HasFeatureLevels):
        return module.feature_levels()
    layers = [layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None]
    if not all(isinstance(layer, nn.Linear) for layer in layers):
        raise UserError(f"fedrcl needs a model with feature_levels(), which {type(module).__name__} does not have")
    return layers[:-1]


@contextmanager
def _features(module: nn.Module) -> Iterator[list[Tensor]]:
    """The outputs of the feature levels, a list that is filled while the module runs."""
    outputs: list[Tensor] = []

    def store(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        outputs.append(output)

    handles = [level.register_forward_hook(store) for level in feature_levels(module)]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
