"""Flatness discrepancy Δ_F: how far the global model's sharpness is from its clients' (FedGF, eq. 7)."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, NamedTuple

import pandas as pd
from pydantic import Field
from torch import Tensor

from analysis.analyses.analysed_run import AnalysedRun
from analysis.analyses.base import ByAscent, OnGlobalObjective, needs_saved_states
from analysis.measures.flatness import flatness_discrepancy
from bench.experiments.run_config import Evaluation
from bench.input.errors import UserError


class Round(NamedTuple):
    """The global model `[P]` after a round; the clients, the local model `[P]` of each, and where these come from."""

    w: Tensor
    clients: Sequence[int]
    local_model: Callable[[int], Tensor]
    words: str


class Discrepancy(ByAscent, OnGlobalObjective):
    """Flatness discrepancy of the global model and the clients' local models."""

    name: ClassVar[str] = "discrepancy"
    columns: ClassVar[tuple[str, ...]] = ("metric", "value")
    of_final_model: ClassVar[bool] = False

    rho: float = Field(default=0.1, gt=0, description="radius of both sharpnesses")
    local_models: Literal["kept", "retrained"] = Field(
        default="kept",
        description="kept by the run, of the round's participants; or retrained from the global model, of all clients, "
        "for one more round",
    )
    round: int | None = Field(
        default=None, ge=1, description="the global model after so many rounds; null: the last of those that are kept"
    )

    def check(self, evaluation: Evaluation) -> None:
        """Local models are kept, or trained from a kept state."""
        if self.local_models == "kept" and evaluation.local_models is None:
            raise UserError(
                f"{self.name} needs local models of the runs, but evaluation.local_models is null: the experiment "
                "keeps none; set it to rounds such as [30], or to last (or the analysis's local_models to retrained)"
            )
        if self.local_models == "retrained":
            needs_saved_states(self.name, evaluation)

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """Three rows: Δ_F, and the two sharpnesses whose distance it is.

        Kept: w^r and the models w_i⁺ of the clients that took part in round r, of which it was made. Retrained: w^r and
        the models of all clients, each trained from it for one round's local steps, with its own state.
        """
        (data, loss), config, setup = run.global_objective(self.images), run.config, run.setup
        kept = self.local_models == "kept"
        finished = self.round or (config.rounds_of_local_models if kept else config.snapshots)[-1]
        of_round = (_kept if kept else _retrained)(run, finished)
        local = ((of_round.local_model(i), run.client_batches(i)) for i in run.progress(of_round.clients, "client"))
        found = flatness_discrepancy(setup.objective, of_round.w, data, local, rho=self.rho, ascent=self.ascent)
        rows = zip(("flatness_discrepancy", "global_sharpness", "mean_local_sharpness"), found, strict=True)
        return pd.DataFrame(rows, columns=["metric", "value"]).assign(
            definition=f"after round {finished}, {self.ascent.description(self.rho)}, {loss}; "
            f"local models: {of_round.words}"
        )


def _kept(run: AnalysedRun, finished_rounds: int) -> Round:
    models = run.directory.local_models(finished_rounds, run.device)
    run.check_finite(models.w_global, f"the global model after round {finished_rounds}")
    words = f"those of the {len(models)} participants of round {finished_rounds}, on their own data"

    def model(client: int) -> Tensor:
        w = models[client]
        run.check_finite(w, f"client {client}'s model of round {finished_rounds}")
        return w

    return Round(models.w_global, list(models), model, words)


def _retrained(run: AnalysedRun, finished_rounds: int) -> Round:
    state = run.state(finished_rounds)
    w = run.setup.federation.evaluated(state)
    words = "all clients', after one more round of local steps, on their own data"
    return Round(w, range(len(run.setup.split)), lambda i: run.retrained(state, i), words)
