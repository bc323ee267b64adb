"""GF: the gradient at a point on the line from the perturbed local model to the perturbed global one.

    u = w + ρ ∇F_i(w)/‖∇F_i(w)‖                     perturbed local point
    v = w^t + ρ_g G/‖G‖,  G = w^{t−1} − w^t          perturbed global point, made by the server
    z = c v + (1−c) u                               where the gradient is taken   (Lee and Yoon 2024, eqs. 9-14)

c is the share of the last W rounds whose mean client distance D = mean_i ‖w_i⁺ − w^t‖ exceeded T_D (eqs. 15, 16), or
a constant (Table 5). In the first round there is no G, and c = 0.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from bench.input.errors import UserError
from bench.methods.base import ClientRound, Gradient, Perturbation, ServerRound, along, norm, unit


class GF(Perturbation):
    """δ = z − w; two gradients per step. ‖δ‖ = ρ where c = 0 only."""

    name: ClassVar[str] = "gf"
    server_state: ClassVar[tuple[str, ...]] = ("w_previous", "indicators")

    rho: float = Field(ge=0, examples=[0.1], description="radius of the local perturbation")
    rho_g: float = Field(ge=0, examples=[0.1], description="radius of the global point")
    T_D: float = Field(examples=[0.3], allow_inf_nan=True, description="threshold on the mean client distance")
    W: int = Field(ge=1, examples=[10], description="length of the indicator window")
    window_rule: Literal["available", "eq16", "alg1"] = Field(
        default="available",
        description="c is the mean of the rounds in the window; or their sum over W; or Algorithm 1's W+1 entries",
    )

    c: float | None = Field(
        default=None, ge=0, le=1, description="a constant c, whatever T_D and W say; null: the share of rounds"
    )

    @field_validator("T_D")
    @classmethod
    def _ordered(cls, value: float) -> float:
        if math.isnan(value):
            raise UserError("T_D is not a number")
        return value

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """No movement yet, and an empty window."""
        return {"w_previous": w0.clone(), "indicators": w0.new_zeros(0)}

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """v^t and c^t; nothing before the first server step."""
        if len(state["indicators"]) == 0:
            return {}
        v = w + self.rho_g * unit(state["w_previous"] - w)
        indicators = state["indicators"]
        return {"v": v, "c": self.interpolation(indicators) if self.c is None else indicators.new_tensor(self.c)}

    def interpolation(self, indicators: Tensor) -> Tensor:
        """c from the indicators of all rounds kept, newest last; a tensor of one number."""
        if self.window_rule == "eq16":
            return indicators[-self.W :].sum() / self.W
        if self.window_rule == "alg1":
            # Algorithm 1 keeps a leading 0 and averages entries max(t−W+1, 0) .. t+1 of (0, I_0, I_1, ...).
            return torch.cat([indicators.new_zeros(1), indicators])[-(self.W + 1) :].mean()
        return indicators[-self.W :].mean()

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """z − w; SAM's perturbation in the first round."""
        local = along(gradient(w), self.rho)
        if "v" not in client.received:
            return local
        c = client.received["c"]
        return torch.lerp(local, client.received["v"] - w, c)

    def aggregate(self, server: ServerRound) -> None:
        """Remember w^t and whether D exceeded T_D; D is a plain mean over the active clients."""
        distance = norm(server.updates).mean()
        indicator = (distance > self.T_D).to(server.w.dtype).reshape(1)
        server.state["w_previous"] = server.w
        server.state["indicators"] = torch.cat([server.state["indicators"], indicator])[-(self.W + 1) :]
