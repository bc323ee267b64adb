"""Perturbation drift and global sharpness over the rounds."""

from typing import ClassVar

import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from analysis.analyses.base import Analysis, needs_states
from analysis.drift import perturbation_drift
from analysis.flatness import sharpness
from analysis.subject import Subject
from bench.config import Evaluation
from bench.data.dataset import Batches
from bench.engine.federation import FederationState
from bench.methods.perturbations.none import NoPerturbation


class Drift(Analysis):
    """Perturbation drift (FedLESAM, section 4.1) and global sharpness after each kept round."""

    name: ClassVar[str] = "drift"
    columns: ClassVar[tuple[str, ...]] = ("round", "perturbation_drift", "sharpness")

    rho: float = Field(default=0.1, gt=0, description="radius of the global sharpness")

    def check(self, evaluation: Evaluation) -> None:
        """The rounds after kept states are played again."""
        needs_states(self.name, evaluation)

    def of_run(self, subject: Subject) -> pd.DataFrame:
        """One row per kept round.

        The drift after round r is that of the round which follows: it is replayed from the kept state with the clients
        that the schedule names. Empty for methods that do not perturb.
        """
        bench, (train, loss) = subject.bench, subject.sample()
        perturbs = not isinstance(bench.federation.method.perturbation, NoPerturbation)
        rows: list[tuple[int, float | None, float]] = []
        for finished in subject.progress(subject.run.config.snapshots, "state"):
            state = subject.state(finished)
            sharp = sharpness(bench.objective, bench.federation.evaluated(state), train, self.rho)
            rows.append((finished, _of_round(subject, state, train) if perturbs else None, sharp))
        table = pd.DataFrame(rows, columns=["round", "perturbation_drift", "sharpness"])
        return table.assign(
            definition=f"PD of the following round's clients; sharpness: one ascent step of length {self.rho:g}; "
            f"global objective: {loss}"
        )


def _of_round(subject: Subject, state: FederationState, train: Batches) -> float:
    bench = subject.bench
    active = bench.active(state)
    deltas: dict[int, list[Tensor]] = {i: [] for i in active}
    iterates: dict[int, list[Tensor]] = {i: [] for i in active}

    def watch(client: int, step: int, w: Tensor, delta: Tensor) -> None:
        deltas[client].append(delta)
        iterates[client].append(w)

    bench.federation.train_clients(state, active, probe=watch)
    return perturbation_drift(
        [torch.stack(deltas[i]) for i in active],
        [torch.stack(iterates[i]) for i in active],
        lambda w: bench.objective.full_gradient(w, train),
    )
