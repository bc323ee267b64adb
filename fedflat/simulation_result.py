"""Part of the Python API: what a simulation returns."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor, nn

from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.own_inputs import Inputs, OwnArray
from fedflat.bench.engine.own_tensors import copied
from fedflat.bench.input.arguments import checked
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError, first_few
from fedflat.bench.models.user_model import trained_parameters
from fedflat.bench.training.engine_choice import EngineChoice


@dataclass(frozen=True)
class SimulationResult:
    """The global models and measurements of a simulation."""

    global_params: list[Tensor]
    """The flat global parameters `[P]` after the last round, or after each one, in the order of `model.parameters()`.
    """
    global_buffers: list[Tensor]
    """The flat buffers `[B]` that belong to `global_params`, in the order of `model.buffers()`, without those of frozen
    parts; empty if the model has none."""
    history: pd.DataFrame
    """One row per round; docs/results.md explains the columns."""
    engine: EngineChoice
    """How the first round was computed. `simulate` with this `engine` gives the same bits."""
    model: nn.Module
    """A copy of the model with the last global parameters, and buffers, in evaluation mode."""
    split: list[NDArray[np.int64]]
    """The samples of each client, as indices into the given data; into the clients' data one after another if there
    was no partition."""
    received: Inputs
    """How the model receives inputs, for `inputs`."""

    def inputs(self, x: OwnArray) -> Tensor:
        """Inputs `[n, ...]` as the model received those of the clients, bytes normalised by their mean and deviation.

        A `UserError` if they are no such numbers.
        """
        return self.received(x, self.global_params[-1] if self.global_params else _flat(self.model))

    @checked
    def model_after(self, round_: Count) -> nn.Module:
        """A copy of the model after this round, with its parameters and buffers, in evaluation mode.

        A `UserError` if they were not kept: only those of the last round are, without `keep_every_round`.
        """
        rounds = self.history["round"].tolist()[-len(self.global_params) :]
        if round_ not in rounds:
            kept_rounds = first_few([*map(str, rounds)])
            raise UserError(
                f"no parameters of round {round_!r} (allowed: {kept_rounds}; keep_every_round=True keeps all)"
            )
        kept = rounds.index(round_)
        objective = Objective(copied(self.model), buffer_mode="average" if self.global_buffers else None)
        if self.global_buffers:
            objective.buffers = self.global_buffers[kept]
        return objective.load(self.global_params[kept].clone()).eval()


def _flat(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(trained_parameters(model).values()).detach()
