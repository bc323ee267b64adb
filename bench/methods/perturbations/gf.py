"""GF: the gradient is computed at a point between the perturbed local model and the perturbed global model.

    u = w + ρ ∇F_i(w)/‖∇F_i(w)‖                     perturbed local point
    v = w^t + ρ_g G/‖G‖,  G = w^{t−1} − w^t          perturbed global point, computed by the server
    z = c v + (1−c) u                               point of the gradient   (Lee and Yoon 2024, eqs. 9-14)

c is the share of the last W rounds whose mean client distance D = mean_i ‖w_i⁺ − w^t‖ exceeded T_D (eqs. 15, 16), or
a constant (Table 5). In the first round G is not defined, and c = 0.
"""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import ClientRound, Gradient, Perturbation, ServerRound, along, norm, unit
from fedflat.bench.methods.marks import Neutral, Scheduled, Search
from fedflat.bench.metrics.quantity import Quantity


class GF(Perturbation):
    """δ = z − w. Two gradients per step. ‖δ‖ = ρ only if c = 0."""

    name: ClassVar[str] = "gf"
    weighted_by_samples: ClassVar[bool] = True
    server_state: ClassVar[tuple[str, ...]] = ("w_previous", "indicators")
    measured: ClassVar[Mapping[str, Quantity]] = {"c": Quantity("coefficient c of FedGF")}

    rho: Annotated[float, Neutral(0, given={"T_D": "infinity"}), Scheduled(), Search(low=0.001, high=0.5, log=True)] = (
        Field(ge=0, examples=[0.1], description="radius of the local perturbation")
    )
    rho_g: Annotated[float, Scheduled(), Search(low=0.02, high=0.5, log=True)] = Field(
        ge=0, examples=[0.1], description="radius of the global point"
    )
    T_D: Annotated[float, Neutral("infinity", base="sam"), Search(low=0.1, high=1, log=True)] = Field(
        examples=[0.3], allow_inf_nan=True, description="threshold on the mean client distance"
    )
    W: Annotated[Count, Search(values=(10, 30, 50))] = Field(
        examples=[10], description="length of the indicator window"
    )
    window_rule: Literal["available", "eq16", "alg1"] = Field(
        default="available",
        description="c is the mean over the rounds in the window; or their sum divided by W; or as in Algorithm 1",
    )
    c: Annotated[float | None, Neutral(0, base="sam")] = Field(
        default=None, ge=0, le=1, description="a constant c, which T_D and W do not change; null: the share of rounds"
    )

    @field_validator("T_D")
    @classmethod
    def _ordered(cls, value: float) -> float:
        if math.isnan(value):
            raise UserError("T_D = nan (allowed: a number, or infinity)")
        return value

    def start_server(self, w0: Tensor) -> dict[str, Tensor]:
        """w^{t−1} = w^0, and an empty window."""
        return {"w_previous": w0.clone(), "indicators": w0.new_zeros(0)}

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """v and c; nothing before the first server step."""
        if len(state["indicators"]) == 0:
            return {}
        v = w + self.rho_g * unit(state["w_previous"] - w)
        indicators = state["indicators"]
        return {"v": v, "c": self.interpolation(indicators) if self.c is None else indicators.new_full((), self.c)}

    def interpolation(self, indicators: Tensor) -> Tensor:
        """c, a tensor of one number, computed from the stored indicators, oldest first."""
        if self.window_rule == "eq16":
            return indicators[-self.W :].sum() / self.W
        if self.window_rule == "alg1":
            # Algorithm 1 averages the entries max(t−W+1, 0) .. t+1 of (0, I_0, I_1, ...).
            return torch.cat([indicators.new_zeros(1), indicators])[-(self.W + 1) :].mean()
        return indicators[-self.W :].mean()

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """z − w. In the first round it is SAM's perturbation."""
        local = along(gradient(w), self.rho)
        if "v" not in client.received:
            return local
        c = client.received["c"]
        return torch.lerp(local, client.received["v"] - w, c)

    def aggregate(self, server: ServerRound) -> None:
        """Stores w^t and whether D > T_D. D is the unweighted mean over the active clients."""
        distance = norm(server.updates).mean()
        indicator = (distance > self.T_D).to(server.w.dtype).reshape(1)
        server.state["w_previous"] = server.w
        server.state["indicators"] = torch.cat([server.state["indicators"], indicator])[-(self.W + 1) :]
