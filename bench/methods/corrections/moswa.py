"""FedMoSWA: FedSWA with control variates whose server part forgets (Liu et al., ICML 2025).

    q = g − c_i + m,   with the rates η_{t,k} of FedSWA
    c_i⁺ = c_i − m − Δ_i/Σ_k η_{t,k}             (`control: drift`, option II)
    c_i⁺ = gradient over all data of client i at w^t   (`control: gradient`, option I; one more pass per round)
    clients send c_i⁺ − m;   m ← m + γ (1/M) Σ_{i∈S} (c_i⁺ − m);   w^{t+1} = w^t + η_g Δ

γ is `control_rate`, and the paper's α is `server_lr`. Without weight decay, clipping and momentum, c_i⁺ is the mean of
the client's gradients on its path, weighted by the rates. The code of May 2025 divides by K_i (1+r) η_t/2 instead of
the sum (`control_norm: trapezoid`), and in the first round sets m to the mean of c_i⁺, whatever γ is (`control_start:
mean`).
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, ServerRound
from fedflat.bench.methods.corrections.falling_rate import FallingRate
from fedflat.bench.methods.marks import Search


class ForgettingControl(FallingRate):
    """q = g − c_i + m. m is a moving average of control variates, not the mean of all c_i as in SCAFFOLD."""

    name: ClassVar[str] = "fedmoswa"
    weighted_by_samples: ClassVar[bool] = False
    client_state: ClassVar[tuple[str, ...]] = ("c_i",)
    server_state: ClassVar[tuple[str, ...]] = ("m_control",)

    lr_ratio: Annotated[float, Search(low=0.01, high=1, log=True)] = Field(
        ge=0, le=1, description="r: the local rate falls within a round from η_t towards r η_t", examples=[0.1]
    )
    control_rate: Annotated[float, Search(low=0.05, high=1, log=True)] = Field(
        ge=0, le=1, description="γ: weight of the newest control variates in m", examples=[0.2]
    )
    control: Literal["drift", "gradient"] = Field(
        default="drift", description="c_i⁺ from the client's update, or its gradient over all data at w^t"
    )
    control_norm: Literal["sum", "trapezoid"] = Field(
        default="sum", description="what an update is divided by: the sum of the rates, or K_i (1 + r) η_t/2"
    )
    control_start: Literal["rate", "mean"] = Field(
        default="rate", description="m after the first round: γ times the mean of c_i⁺, or this mean"
    )

    def needs_full_gradient(self) -> bool:
        """Whether c_i⁺ is the gradient over all data."""
        return self.control == "gradient"

    def broadcast(self, w: Tensor, state: Mapping[str, Tensor], t: int = 0) -> dict[str, Tensor]:
        """m, under the name `control`."""
        return {"control": state["m_control"]}

    def start(self, client: ClientRound) -> None:
        """m − c_i, which is constant during the round; with `gradient` also c_i⁺."""
        client.scratch["pull"] = client.received["control"] - client.state["c_i"]
        if self.control == "gradient":
            client.scratch["full_gradient"] = client.full_gradient(client.w_global)

    def direction(self, g: Tensor, w: Tensor, client: ClientRound) -> Tensor:
        """g − c_i + m."""
        return g + client.scratch["pull"]

    def finish(self, w: Tensor, client: ClientRound) -> None:
        """Stores c_i⁺ and sends c_i⁺ − m."""
        m = client.received["control"]
        if self.control == "gradient":
            c_i_new = client.scratch["full_gradient"]
        else:
            c_i_new = client.state["c_i"] - m - (w - client.w_global) / self.divisor(client)
        client.upload["control_change"] = c_i_new - m
        client.state["c_i"] = c_i_new

    def divisor(self, client: ClientRound) -> float | Tensor:
        """Σ_k η_{t,k}, or K_i (1 + r) η_t/2."""
        if self.control_norm == "sum":
            return client.rate_sum
        return client.steps * client.lr * (1 + self.lr_ratio) / 2

    def aggregate(self, server: ServerRound) -> None:
        """The new m. The mean over the active clients is unweighted, whatever the aggregation weights are."""
        rate = 1.0 if self.control_start == "mean" and server.round == 0 else self.control_rate
        change = server.uploads["control_change"].mean(0)
        server.state["m_control"] = server.state["m_control"] + rate * change
