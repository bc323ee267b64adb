"""Perturbation drift and global sharpness, after each stored round."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import ByAscent, OnGlobalObjective, needs_stored_states
from fedflat.analysis.measures.drift import PerturbationDrift, perturbation_drift
from fedflat.analysis.measures.flatness import sharpness
from fedflat.bench.data.dataset import Batches
from fedflat.bench.engine.federation import FederationState
from fedflat.bench.experiments.address import RUN_IDS
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.methods.perturbations.none import NoPerturbation
from fedflat.bench.metrics.quantity import Quantity


class Drift(ByAscent, OnGlobalObjective):
    """Perturbation drift (FedLESAM, section 4.1) and global sharpness after each stored round."""

    name: ClassVar[str] = "drift"
    columns: ClassVar[tuple[str, ...]] = (
        "round", "perturbation_drift", "cosine", "local_norm", "gradient_norm", "sharpness",
    )  # fmt: skip
    quantities: ClassVar[Mapping[str, Quantity]] = {
        "drift": Quantity("perturbation drift", "lower", of_runs=5),
    }
    of_final_model: ClassVar[bool] = False

    rho: float = Field(default=0.1, gt=0, description="radius ρ of the global sharpness")
    virtual: Literal["participants", "all"] = Field(
        default="participants",
        description="clients whose mean iterate is the virtual global model; all: every client trains, as in the paper",
    )

    @classmethod
    def values(cls, rows: pd.DataFrame) -> pd.DataFrame:
        """The drift after the last stored round."""
        last = rows.sort_values("round").drop_duplicates(RUN_IDS, keep="last")
        return last.rename(columns={"perturbation_drift": "drift"})[[*RUN_IDS, "drift"]]

    def check(self, evaluation: Evaluation) -> None:
        """Stored states are needed: the rounds after them are repeated."""
        needs_stored_states(self.name, evaluation)

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per stored round.

        The row of round r has the drift of round r + 1, which is repeated from the stored state with its participants.
        The drift is empty for methods without perturbation, and if the participation schedule ends with round r.
        """
        setup, (train, loss) = run.setup, run.global_objective(self.images)
        perturbs = not isinstance(setup.federation.method.perturbation, NoPerturbation)
        rows = []
        for finished in run.progress(run.config.snapshots, "state"):
            state = run.state(finished)
            clients = run.next_clients(state) if perturbs else []
            drift = self._of_round(run, state, clients, train) if clients else None
            sharp = sharpness(setup.objective, setup.federation.evaluated(state), train, self.rho, self.ascent)
            rows.append((finished, *(drift or [None] * len(PerturbationDrift._fields)), sharp))
        whose = f"all {len(setup.split)} clients'" if self.virtual == "all" else "their"
        compared = (
            f"perturbations of the next round's clients against the global gradient at the mean of {whose} iterates"
            if perturbs
            else "no perturbations"
        )
        return pd.DataFrame(rows, columns=list(self.columns)).assign(
            definition=f"{compared}; sharpness: {self.ascent.description(self.rho)}; global objective: {loss}"
        )

    def _of_round(
        self, run: AnalysedRun, state: FederationState, clients: Sequence[int], train: Batches
    ) -> PerturbationDrift:
        setup = run.setup
        federation = setup.federation
        start = federation.broadcast(state).model

        def global_gradient(mean_iterate: Tensor) -> Tensor:
            """∇F at the virtual global model w^t − η_g (w^t − mean of the w_i,k)."""
            virtual_model = torch.lerp(start, mean_iterate, federation.server_rate(state.round))
            return setup.objective.full_gradient(virtual_model, train)

        return perturbation_drift(
            clients,
            lambda client, probe: federation.train_clients(state, [client], probe, participants=len(clients)),
            global_gradient,
            range(len(setup.split)) if self.virtual == "all" else None,
        )
