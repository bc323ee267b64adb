"""FedGMT: cross-entropy plus the distance of the outputs from those of a mean of past models (Li et al., ICML 2025).

    F_i = ℓ(w; ξ) + γ T² mean over ξ of KL( softmax(f_e/T) ‖ softmax(f_w/T) )
    e^t = α e^{t−1} + (1−α) w^t,   e^0 = w^0,   sent by the server and constant during the round

f are class scores, γ is `weight_kl`, T `temperature`, α `ema_decay`. e^t contains w^t, so in round 0 the first step has
no pull. Each step has one more forward pass, and no more backward pass. T² and e^0 are those of the released code.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from fedflat.bench.methods.base import Loss, ServerRound
from fedflat.bench.methods.marks import Neutral, Search
from fedflat.bench.models.network import Network, Variables, cross_entropy


class TrajectoryTeacher(Loss):
    """ℓ + γ T² KL. The server stores e^{t−1}, from which it computes e^t at the beginning of round t."""

    name: ClassVar[str] = "fedgmt"
    server_state: ClassVar[tuple[str, ...]] = ("e",)
    teachers: ClassVar[tuple[str, ...]] = ("e",)
    weighted_by_samples: ClassVar[bool] = True

    ema_decay: Annotated[float, Search(values=(0.95, 0.995, 0.998))] = Field(
        ge=0, lt=1, description="α: share of the old mean model that is kept in a round", examples=[0.95]
    )
    weight_kl: Annotated[float, Neutral(0), Search(values=(0.5, 1.0, 2.0))] = Field(
        default=1.0, ge=0, description="γ: weight of the distance from the outputs at e"
    )
    temperature: float = Field(default=3.0, gt=0, description="T, which divides class scores in the distance")

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """e = w^0."""
        return {"e": w0.clone()}

    def trajectory(self, w: Tensor, e: Tensor) -> Tensor:
        """α e + (1−α) w, and exactly w for e = w."""
        return torch.lerp(w, e, self.ema_decay)

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """e^t."""
        return {"e": self.trajectory(w, state["e"])}

    def active_teachers(self) -> tuple[str, ...]:
        """e, unless the distance has weight 0."""
        return self.teachers if self.weight_kl > 0 else ()

    def value(self, model: Network, x: Tensor, y: Tensor, weights: Tensor | None, variables: Variables) -> Tensor:
        """ℓ + γ T² KL."""
        scores = model(x)
        loss = cross_entropy(scores, y, weights)
        if self.weight_kl == 0:
            return loss
        distances = self.distances(variables["e"], scores)
        distance = distances.mean() if weights is None else (distances * weights).sum()
        return loss + self.weight_kl * self.temperature**2 * distance

    def distances(self, teacher: Tensor, scores: Tensor) -> Tensor:
        """KL(softmax(f_e/T) ‖ softmax(f_w/T)) `[B]`; the mean over pixels, if each has scores."""
        log_e, log_w = (F.log_softmax(f / self.temperature, dim=1) for f in (teacher, scores))
        distances = (log_e.exp() * (log_e - log_w)).sum(1)
        return distances.reshape(len(distances), -1).mean(1)

    def aggregate(self, server: ServerRound) -> None:
        """Stores e^t."""
        server.state["e"] = self.trajectory(server.w, server.state["e"])
