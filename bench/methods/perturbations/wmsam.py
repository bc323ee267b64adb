"""FedWMSAM's perturbation: away from the drift, towards where the momentum alone would lead (Li et al., NeurIPS 2025).

    d = (w^t + k P_i) − w   in step k = 0, ..., K_i − 1;     δ = ρ unit(d)

P_i is the momentum of FedWMSAM's correction, which points uphill. In step 0, d = 0. The released code indexes d by the
number j of the tensor, with the opposite sign: for tensor j of the model

    δ_j = −ρ d_j / Σ_l ‖d_l‖                    (`released_intent`: d_j is tensor j of d)
    δ_j = −ρ d[j] / Σ_l |d[l]|                  (`released_literal`: d[j] is the j-th number of d)
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, Gradient, Perturbation, along
from fedflat.bench.methods.common.released_directions import one_number_each, over_sum_of_norms
from fedflat.bench.methods.marks import Neutral, Scheduled, Search


class MomentumTarget(Perturbation):
    """δ = ρ unit(d). One gradient per step. ‖δ‖ = ρ only for the published estimate, from the second step on."""

    name: ClassVar[str] = "fedwmsam"
    needs: ClassVar[Mapping[str, str]] = {"correction": "fedwmsam"}

    rho: Annotated[float, Neutral(0), Scheduled(), Search(low=0.001, high=0.5, log=True)] = Field(
        ge=0, examples=[0.1], description="perturbation radius"
    )
    estimate: Literal["published", "released_intent", "released_literal"] = Field(
        default="published", description="along d, or as in the released code"
    )

    def delta(self, w: Tensor, gradient: Gradient, client: ClientRound) -> Tensor:
        """ρ unit(d)."""
        d = client.w_global + client.step * client.scratch["P"] - w
        if self.estimate == "published":
            return along(d, self.rho)
        released = over_sum_of_norms if self.estimate == "released_intent" else one_number_each
        return -self.rho * released(d, client.layout)
