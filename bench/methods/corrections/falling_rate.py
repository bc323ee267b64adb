"""FedSWA: a local rate that falls within each round, and begins anew in the next (Liu et al., ICML 2025, Eq. 3).

    q = g,   w ← w − η_{t,k} (clip(q) + ω w)     with  η_{t,k} = η_t (1 − (1−r) k/K_i)  in step k = 0, ..., K_i − 1

r is `lr_ratio`. The last step has η_t (1 − (1−r) (K_i−1)/K_i), not r η_t. The sum of the rates is η_t (K_i (1+r) + 1 −
r)/2. The paper's α is `server_lr`: FedSWA is FedAvg with a rate that falls within a round, and a longer step of the
server. It does not average models over rounds, as `swa` does.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import Correction
from fedflat.bench.methods.marks import Neutral, Search


class FallingRate(Correction):
    """q = g, with rates that fall linearly from η_t towards r η_t."""

    name: ClassVar[str] = "fedswa"
    weighted_by_samples: ClassVar[bool] = True

    lr_ratio: Annotated[float, Neutral(1), Search(low=0.01, high=1, log=True)] = Field(
        ge=0, le=1, description="r: the local rate falls within a round from η_t towards r η_t", examples=[0.1]
    )

    def rate(self, lr: float | Tensor, step: int | Tensor, steps: int | Tensor) -> float | Tensor:
        """η_t (1 − (1−r) k/K_i)."""
        return lr * (1 - (1 - self.lr_ratio) * step / steps)
