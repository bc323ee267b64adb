"""SMOO: dual variables μ_i pull the local perturbations towards a common one, s (FedSMOO, Sun et al., ICML 2023).

    δ = ρ unit(g₁ − μ_i − s),   μ_i ← μ_i + δ − s          at every local step, with g₁ = ∇F_i(w; ξ)
    s ← ρ unit(mean over the active clients of μ_i − δ_last)

FedSMOO combines it with FedDyn's correction and server (corrections/dyn.py and servers/dyn.py).
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Gradient, Perturbation, ServerRound, along, unit
from fedflat.bench.methods.marks import DropsOtherComponents, Neutral, Radius, Scheduled, Search


class SMOO(Perturbation):
    """δ = ρ unit(g₁ − μ_i − s). Two gradients per step. In the very first step δ is SAM's, since μ_i = s = 0."""

    name: ClassVar[str] = "smoo"
    client_state: ClassVar[tuple[str, ...]] = ("mu",)
    server_state: ClassVar[tuple[str, ...]] = ("s",)

    rho: Annotated[float, Neutral(0), Radius(), Scheduled(), Search(low=0.001, high=0.5, log=True)] = Field(
        ge=0, description="perturbation radius", examples=[0.1]
    )
    s_rule: Literal["minus_last", "mu_only"] = Field(
        default="minus_last", description="clients send μ_i − δ of the last step, or μ_i"
    )
    regulariser: Annotated[bool, DropsOtherComponents()] = Field(
        default=True, strict=True, description="use the dynamic regulariser; false: q = g, and the server is FedAvg's"
    )

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """The common perturbation s."""
        return {"s": state["s"]}

    def start(self, client: ClientRound) -> None:
        """μ_i as the client stored it."""
        client.scratch["mu"] = client.state["mu"]

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """ρ unit(g₁ − μ_i − s), and the new μ_i."""
        mu, s = client.scratch["mu"], client.received["s"]
        delta = along((gradient(w) - mu).sub_(s), self.rho)
        client.scratch["mu"] = (mu + delta).sub_(s)
        client.scratch["last_delta"] = delta
        return delta

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """Stores μ_i; sends s_i = μ_i − δ of the last step, or μ_i."""
        mu = client.scratch["mu"]
        client.state["mu"] = mu
        client.upload["s_i"] = mu - client.scratch["last_delta"] if self.s_rule == "minus_last" else mu

    def aggregate(self, server: ServerRound) -> None:
        """The new s. The mean over the active clients is unweighted, whatever the aggregation weights are."""
        server.state["s"] = self.rho * unit(server.uploads["s_i"].mean(0))
