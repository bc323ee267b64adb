"""Flatness discrepancy Δ_F: how far the global model's sharpness is from that of the local models (FedGF, eq. 7)."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import pandas as pd
from pydantic import Field
from torch import Tensor

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import ByAscent, OnGlobalObjective, needs_stored_states
from fedflat.analysis.measures.flatness import flatness_discrepancy
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.quantity import Quantity


class RoundModels(NamedTuple):
    """The global model `[P]` after a round, the local model `[P]` of each client, and a description of the latter."""

    w: Tensor
    clients: Sequence[int]
    local_model: Callable[[int], Tensor]
    description: str


class Discrepancy(ByAscent, OnGlobalObjective):
    """Flatness discrepancy of the global model and the clients' local models."""

    name: ClassVar[str] = "discrepancy"
    columns: ClassVar[tuple[str, ...]] = ("metric", "value")
    quantities: ClassVar[Mapping[str, Quantity]] = {
        "flatness_discrepancy": Quantity(
            "flatness discrepancy Δ_F", "lower", short="flatness discrepancy", of_runs=2, is_flatness=True
        ),
    }
    of_final_model: ClassVar[bool] = False

    rho: float = Field(default=0.1, gt=0, description="radius ρ of both sharpness values")
    local_models: Literal["kept", "retrained"] = Field(
        default="kept",
        description="kept: the models of the round's participants, which the run stored; retrained: models of all "
        "clients, trained for one more round from the global model",
    )
    round: Count | None = Field(
        examples=[30],
        default=None,
        description="the round after which the global model is taken; null: the last one with stored models",
    )

    def check(self, evaluation: Evaluation) -> None:
        """Local models must be stored (`kept`), or states to train them from (`retrained`)."""
        if self.local_models == "kept" and evaluation.local_models is None:
            raise UserError(
                f"{self.name} needs local models of the runs, but evaluation.local_models is null: the experiment "
                "stores none; set it to rounds such as [30], or to last (or the analysis's local_models to retrained)"
            )
        if self.local_models == "retrained":
            needs_stored_states(self.name, evaluation)

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """Three rows: Δ_F, and the two sharpness values whose difference it is.

        The global model is w^r. The local models are, if `kept`, the models w_i⁺ of the participants of round r, from
        which w^r was computed; if `retrained`, the models of all clients, each trained from w^r for the local steps of
        one round, with its own client state.
        """
        (data, loss), config, setup = run.global_objective(self.images), run.config, run.setup
        kept = self.local_models == "kept"
        finished = self.round or (config.rounds_of_local_models if kept else config.snapshots)[-1]
        models = (_stored if kept else _retrained)(run, finished)
        local = ((models.local_model(i), run.client_batches(i)) for i in run.progress(models.clients, "client"))
        found = flatness_discrepancy(setup.objective, models.w, data, local, rho=self.rho, ascent=self.ascent)
        rows = zip(("flatness_discrepancy", "global_sharpness", "mean_local_sharpness"), found, strict=True)
        return pd.DataFrame(rows, columns=["metric", "value"]).assign(
            definition=f"after round {finished}, {self.ascent.description(self.rho)}, {loss}; "
            f"local models: {models.description}"
        )


def _stored(run: AnalysedRun, finished_rounds: int) -> RoundModels:
    models = run.directory.local_models(finished_rounds, run.device)
    run.check_finite(models.w_global, f"the global model after round {finished_rounds}")
    description = f"those of the {len(models)} participants of round {finished_rounds}, on their own data"

    def model(client: int) -> Tensor:
        w = models[client]
        run.check_finite(w, f"client {client}'s model of round {finished_rounds}")
        return w

    return RoundModels(models.w_global, list(models), model, description)


def _retrained(run: AnalysedRun, finished_rounds: int) -> RoundModels:
    state = run.state(finished_rounds)
    w = run.setup.federation.evaluated(state)
    description = "those of all clients, after the local steps of one more round, on their own data"
    return RoundModels(w, range(len(run.setup.split)), lambda i: run.retrained(state, i), description)
