"""SCAFFOLD: control variates against client drift (Karimireddy et al. 2020, option II).

q = g − c_i + c
c_i⁺ = c_i − c − Δ_i/Σ_k η_{t,k}, of which c_i⁺ − c_i is uploaded;   c ← c + (1/N) Σ_{i∈S} (c_i⁺ − c_i)

The paper's K_i η_t is this sum of the rates of the local steps, if the rate is constant during the round.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Correction, ServerRound
from fedflat.bench.methods.marks import Neutral


class ControlVariates(Correction):
    """q = g + weight·(c − c_i). At any time c is the mean of the c_i of all N clients."""

    name: ClassVar[str] = "scaffold"
    client_state: ClassVar[tuple[str, ...]] = ("c_i",)
    server_state: ClassVar[tuple[str, ...]] = ("c",)

    correction_weight: Annotated[float, Neutral(0)] = Field(
        default=1.0, ge=0, description="weight of c − c_i in the step"
    )

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """c, under the name `control`."""
        return {"control": state["c"]}

    def start(self, client: ClientRound) -> None:
        """weight·(c − c_i), which is constant during the round."""
        client.scratch["pull"] = self.correction_weight * (client.received["control"] - client.state["c_i"])

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """g + weight·(c − c_i)."""
        return g + client.scratch["pull"]

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """Stores c_i⁺ and uploads c_i⁺ − c_i."""
        c, c_i = client.received["control"], client.state["c_i"]
        c_i_new = c_i - c - (w - client.w_global) / client.rate_sum
        client.upload["control_change"] = c_i_new - c_i
        client.state["c_i"] = c_i_new

    def aggregate(self, server: ServerRound) -> None:
        """The new c."""
        server.state["c"] = mean_control(server)


def mean_control(server: ServerRound) -> Tensor:
    """c + (1/N) Σ (c_i⁺ − c_i), whatever the aggregation weights are."""
    return server.state["c"] + server.uploads["control_change"].sum(0) / server.n_clients
