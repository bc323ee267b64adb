"""λ_max of each client's own loss at its local model, over the rounds (Caldarola et al. 2022, Figures 4 and 16)."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import pandas as pd
from pydantic import Field

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import OfEigenvalues, needs_stored_states
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.input.bounds import ALL_IS_NULL, MOST, Count
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream

Number = Annotated[int, Field(ge=0, le=MOST)]


class ClientHessian(OfEigenvalues):
    """The largest Hessian eigenvalue of each client's local model on the client's own data, after each stored round."""

    name: ClassVar[str] = "client_hessian"
    columns: ClassVar[tuple[str, ...]] = ("round", "client", "lambda_max", "residual", "converged")
    of_final_model: ClassVar[bool] = False

    clients: Annotated[Count | tuple[Number, ...] | None, ALL_IS_NULL] = Field(
        default=None,
        examples=[10],
        description="number of clients, drawn by the seed, the same for all methods; or a list of clients; null: all",
    )
    rounds: Annotated[tuple[Number, ...] | None, ALL_IS_NULL] = Field(
        default=None, examples=[[10, 30]], description="rounds with stored states; null: all of them"
    )

    def check(self, evaluation: Evaluation) -> None:
        """Stored states are needed: local models are trained from them."""
        needs_stored_states(self.name, evaluation)

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per stored round and client.

        The local model in the row of round r is trained for round r + 1: the client starts from the state stored after
        round r, with its own client state, even if it does not participate in round r + 1. One local model is in memory
        at a time.
        """
        clients = self._selected_clients(run)
        rounds = run.config.snapshots if self.rounds is None else self.rounds
        parts = [(finished, client) for finished in rounds for client in clients]
        state, rows = None, []
        for finished, client in run.progress(parts, "local model"):
            if state is None or state.round != finished:
                state = run.state(finished)
            w = run.retrained(state, client)
            data = run.client_batches(client)
            found = self.top_eigenvalues(run, w, data, 1, f"round {finished}, client {client}")
            value, residual = found.eigenvalues[0], found.residuals[0]
            rows.append((finished, client, value, residual, int(found.converged), data.samples))
        definition = f"{self.how}; mean cross-entropy of the client's own images at its model after one more round"
        return pd.DataFrame(rows, columns=[*self.columns, "images"]).assign(definition=definition)

    def _selected_clients(self, run: AnalysedRun) -> Sequence[int]:
        everyone = len(run.setup.split)
        if self.clients is None:
            return range(everyone)
        if isinstance(self.clients, int):
            drawn = numpy_stream(run.config.seed, "analysis-clients").permutation(everyone)[: self.clients]
            return sorted(int(client) for client in drawn)
        for client in self.clients:
            if client >= everyone:
                raise UserError(f"client_hessian.clients names {client} (allowed: 0 to {everyone - 1})")
        return self.clients
