"""FedGloSS's server: FedDyn's, after an ascent step along the last update (Caldarola et al., CVPR 2025, Alg. 1).

    clients start from  a^t = w^t − s_t unit(Δ̂),    Δ̂ the mean update of the last round, 0 in round 0
    H̄ ← H̄ + (1/N) Σ_{i∈S} (w_i⁺ − a^t);     Δ̂ ← Σ p_i (w_i⁺ − a^t);     w^{t+1} = w^t + Δ̂ + H̄
    s_t = ρ₀ + f_t (ρ_g − ρ₀),   f_t = min(t, T_s)/T_s          (`server_radius: warmup`)

The paper's σ is −λH̄, its 1/β is λ, and its pseudo-gradient is −Δ̂. The released code takes the last entry of the list
of the clients' radii for the server's: s_t = ρ + (ρ_g − ρ₀)/T_s for 1 ≤ t ≤ T_s, then ρ_g (`server_radius: released`).
It also divides the sum in H̄ by M (`dual_norm: NM`). A schedule of ρ does not change s_t; one of ρ_g multiplies it.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor

from fedflat.bench.input.bounds import MOST
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import Server, ServerRound, along
from fedflat.bench.methods.marks import Scheduled, Search, Shared
from fedflat.bench.methods.perturbations.gloss import StartRadius, WarmUp
from fedflat.bench.methods.schedules.warm_up import risen


class GlobalAscent(Server):
    """w^t + Δ̂ + H̄, where clients start from a^t. At any time H̄ is the mean of all H_i. There is no server rate."""

    name: ClassVar[str] = "fedgloss"
    weighted_by_samples: ClassVar[bool] = True
    needs_client_state: ClassVar[tuple[str, ...]] = ("H",)
    server_state: ClassVar[tuple[str, ...]] = ("H_bar", "last_update")

    rho: Annotated[float, Scheduled(), Search(low=0.001, high=0.5, log=True), Shared()] = Field(
        ge=0, examples=[0.1], description="the clients' radius ρ after the warm-up"
    )
    rho_g: Annotated[float, Scheduled(), Search(low=0.001, high=0.5, log=True)] = Field(
        ge=0, examples=[0.1], description="radius ρ_g of the server's ascent step after the warm-up"
    )
    rho_0: StartRadius = Field(default=0.0, ge=0, description="radius ρ₀ in round 0, if there is a warm-up")
    warmup: WarmUp = Field(
        default=0, ge=0, le=MOST, description="rounds T_s within which the radii rise from ρ₀; 0 and 1: no warm-up"
    )
    server_radius: Literal["warmup", "released"] = Field(
        default="warmup", description="the server's radius rises to ρ_g, or is that of the released code"
    )
    dual_norm: Literal["N", "NM"] = Field(
        default="N", description="H̄ moves by the sum of updates divided by N, or also by the number M of active clients"
    )

    @model_validator(mode="after")
    def _not_negative(self) -> "GlobalAscent":
        if self.server_radius == "released" and self.warmup > 1 and (radius := self.radius_during_warmup()) < 0:
            raise UserError(
                f"server_radius: released gives the server's radius rho + (rho_g - rho_0)/warmup = {radius:g} "
                "(allowed: at least 0)"
            )
        return self

    def radius_during_warmup(self) -> float:
        """The radius of the released code in the rounds of the warm-up."""
        return self.rho + (self.rho_g - self.rho_0) / self.warmup

    def radius(self, t: int) -> float:
        """s_t."""
        if self.warmup <= 1:
            return self.rho_g
        if self.server_radius == "warmup":
            return risen(self.rho_0, self.rho_g, t, self.warmup)
        return self.radius_during_warmup() if t <= self.warmup else self.rho_g

    def round_values(self, t: int) -> dict[str, float]:
        """s_t in place of ρ_g, if there is a warm-up."""
        return {"rho_g": self.radius(t)} if self.warmup > 1 else {}

    def broadcast_model(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> Tensor:
        """a^t."""
        return w - along(state["last_update"], self.rho_g)

    def needs_unit_server_lr(self) -> bool:
        """True."""
        return True

    def step(self, server: ServerRound) -> Tensor:
        """w^t + Δ̂ + H̄, from w^t and not from a^t."""
        divisor = server.n_clients * (len(server.updates) if self.dual_norm == "NM" else 1)
        H_bar = server.state["H_bar"] + server.updates.sum(0) / divisor
        update = server.mean_update
        server.state |= {"H_bar": H_bar, "last_update": update}
        return server.w + update + H_bar
