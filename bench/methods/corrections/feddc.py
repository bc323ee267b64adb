"""FedDC: FedDyn's correction plus SCAFFOLD's control variates (Gao et al., CVPR 2022, as released).

    q = g + λ (H_i + w − w^t) + c − c_i
    H_i ← H_i + Δ_i;   c_i⁺ = c_i − c − Δ_i/Σ_k η_{t,k};   c ← c + (1/N) Σ (c_i⁺ − c_i)

The printed form drops the older control variates (`last_update`: c_i⁺ = −Δ_i/Σ_k η_{t,k}) and averages the duals of the
active clients (`server_dual: active`). The paper defines both for full participation only. The release also divides λ
and c by the client's relative size, which is 1 in all partitions of the papers; this division is left out.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, ServerRound
from fedflat.bench.methods.corrections.dyn import DynamicRegulariser
from fedflat.bench.methods.corrections.scaffold import mean_control


class DriftCorrection(DynamicRegulariser):
    """q = g + λ (H_i + w − w^t) + c − c_i."""

    name: ClassVar[str] = "feddc"
    client_state: ClassVar[tuple[str, ...]] = ("H", "c_i")
    server_state: ClassVar[tuple[str, ...]] = ("c",)

    control: Literal["accumulated", "last_update"] = Field(
        default="accumulated", description="c_i accumulates as in SCAFFOLD, or consists of the last update only"
    )

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """c, under the name `control`."""
        return {"control": state["c"]}

    def constant_pull(self, client: ClientRound) -> Tensor:
        """λ (H_i − w^t) + c − c_i."""
        return super().constant_pull(client) + (client.received["control"] - client.state["c_i"])

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """Stores H_i and c_i⁺; uploads c_i⁺ − c_i."""
        super().finish(w, client)
        c_i = client.state["c_i"]
        c_i_new = -(w - client.w_global) / client.rate_sum
        if self.control == "accumulated":
            c_i_new = c_i - client.received["control"] + c_i_new
        client.upload["control_change"] = c_i_new - c_i
        client.state["c_i"] = c_i_new

    def aggregate(self, server: ServerRound) -> None:
        """The new c."""
        server.state["c"] = mean_control(server)
