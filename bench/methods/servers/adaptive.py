"""FedAdam, FedYogi, FedAdaGrad: adaptive steps of the server along the mean update Δ (Reddi et al., ICLR 2021).

m ← β₁m + (1−β₁)Δ
v ← v + Δ²  (AdaGrad),   β₂v + (1−β₂)Δ²  (Adam),   v − (1−β₂)Δ² sign(v − Δ²)  (Yogi)
w^{t+1} = w^t + η_g m/(√v + τ),   v starts at τ²
"""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import Server, ServerRound
from fedflat.bench.methods.marks import Search


class AdaGrad(Server):
    """v is the sum of the squared updates."""

    name: ClassVar[str] = "adagrad"
    weighted_by_samples: ClassVar[bool] = True
    server_lr_search: ClassVar[Search | None] = Search(low=0.01, high=1, log=True)

    beta1: float = Field(default=0.0, ge=0, lt=1, description="decay of the first moment")
    tau: Annotated[float, Search(low=0.001, high=0.1, log=True)] = Field(
        gt=0, description="added to √v", examples=[1e-3]
    )
    init_v: Literal["tau2", "zero"] = Field(default="tau2", description="initial value of v: τ², or 0")

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """m = 0, and v = τ² or 0."""
        return {"m": torch.zeros_like(w0), "v": torch.full_like(w0, self.tau**2 if self.init_v == "tau2" else 0.0)}

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """v + Δ²."""
        return v + squared

    def corrected(self, m: Tensor, v: Tensor, round_index: int) -> tuple[Tensor, Tensor]:
        """The moments that the step uses."""
        return m, v

    def step(self, server: ServerRound) -> Tensor:
        """w^t + η_g m/(√v + τ)."""
        update = server.mean_update
        m = self.beta1 * server.state["m"] + (1 - self.beta1) * update
        v = self.second_moment(server.state["v"], update**2)
        server.state |= {"m": m, "v": v}
        m, v = self.corrected(m, v, server.round)
        return server.w + server.server_lr * m / (v.sqrt() + self.tau)


class Adam(AdaGrad):
    """v is an exponential moving average of the squared updates."""

    name: ClassVar[str] = "adam"

    beta1: float = Field(default=0.9, ge=0, lt=1, description="decay of the first moment")
    beta2: float = Field(default=0.99, ge=0, lt=1, description="decay of the second moment")
    bias_correction: bool = Field(default=False, description="divide m by 1 − β₁^{t+1} and v by 1 − β₂^{t+1}")

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """β₂v + (1−β₂)Δ²."""
        return self.beta2 * v + (1 - self.beta2) * squared

    def corrected(self, m: Tensor, v: Tensor, round_index: int) -> tuple[Tensor, Tensor]:
        """With `bias_correction` as in torch.optim.Adam."""
        if not self.bias_correction:
            return m, v
        return m / (1 - self.beta1 ** (round_index + 1)), v / (1 - self.beta2 ** (round_index + 1))


class Yogi(Adam):
    """v moves towards the squared update by a bounded step."""

    name: ClassVar[str] = "yogi"

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """v − (1−β₂)Δ² sign(v − Δ²)."""
        return v - (1 - self.beta2) * squared * torch.sign(v - squared)
