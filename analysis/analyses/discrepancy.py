"""Flatness discrepancy Δ_F: how far the global model's sharpness is from its clients' (FedGF, eq. 7)."""

from typing import ClassVar

import pandas as pd
from pydantic import Field

from analysis.analyses.base import Analysis, needs_states
from analysis.flatness import flatness_discrepancy
from analysis.subject import Subject
from bench.config import Evaluation


class Discrepancy(Analysis):
    """Flatness discrepancy of the global model and the clients' local models."""

    name: ClassVar[str] = "discrepancy"
    columns: ClassVar[tuple[str, ...]] = ("metric", "value")

    rho: float = Field(default=0.1, gt=0, description="radius of both sharpnesses")

    def check(self, evaluation: Evaluation) -> None:
        """Local models are trained from the final state."""
        needs_states(self.name, evaluation)

    def of_run(self, subject: Subject) -> pd.DataFrame:
        """One row. The local models are those of all clients, as if one more round had full participation.

        Each is trained for one round's local steps from the final global model, with its own state.
        """
        bench, state = subject.bench, subject.state(subject.run.config.training.rounds)
        w, (data, loss) = bench.federation.evaluated(state), subject.sample()
        local = bench.federation.train_clients(state, range(len(bench.split)))
        local_data = [subject.of_client(i) for i in local]
        value = flatness_discrepancy(
            bench.objective, w, data, [result.w for result in local.values()], local_data, rho=self.rho
        )
        definition = (
            f"one ascent step of length {self.rho:g}, {loss}; "
            "local models: all clients', after one more round of local steps, on their own data"
        )
        return pd.DataFrame([("flatness_discrepancy", value, definition)], columns=["metric", "value", "definition"])
