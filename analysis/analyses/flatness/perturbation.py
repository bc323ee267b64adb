"""Loss of the final global model along random perturbations, and along its gradient."""

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Literal

import pandas as pd
from pydantic import Field
from torch import Tensor

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import ByForwardPasses, OnImages
from fedflat.analysis.measures.flatness import loss_along, random_directions
from fedflat.analysis.measures.forward_passes import ForwardPasses
from fedflat.bench.data.dataset import Batches
from fedflat.bench.input.bounds import MOST_ENTRIES, Count
from fedflat.bench.methods.base import unit
from fedflat.bench.numerics.streams import torch_stream

Direction = Literal["random", "gradient"]


class PerturbedLoss(OnImages, ByForwardPasses):
    """Loss at given distances from the final global model, along random directions (the same for every method) or along
    the gradient."""

    name: ClassVar[str] = "perturbation"
    columns: ClassVar[tuple[str, ...]] = ("direction", "radius", "draw", "loss")

    directions: tuple[Direction, ...] = Field(
        default=("random",),
        min_length=1,
        description="random, or gradient (uphill; downhill at negative radii)",
    )
    radii: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        default=(0, 1, 2, 3, 4, 5), min_length=1, max_length=MOST_ENTRIES, description="distances from the model"
    )
    draws: Count = Field(default=10, description="number of random directions")

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per direction and radius."""
        data, loss = run.sample(self.data, self.images)
        tables = []
        for kind in dict.fromkeys(self.directions):
            directions, radii, description = self._of_kind(kind, run, data)
            draws = self.draws if kind == "random" else 1
            along = run.progress(directions, "direction", total=draws)
            passes = ForwardPasses(run.setup.objective, self.precision, 1 + draws * sum(r != 0 for r in radii))
            table = loss_along(passes, run.w, data, along, radii)
            definition = f"{loss}; {description}"
            tables.append(table.assign(direction=kind, **passes.differences, definition=definition))
        return pd.concat(tables, ignore_index=True)

    def _of_kind(
        self, kind: Direction, run: AnalysedRun, data: Batches
    ) -> tuple[Iterable[Tensor], Sequence[float], str]:
        """Unit directions `[P]`, the radii along them, and a description of both."""
        if kind == "random":
            stream = torch_stream(run.config.seed, "perturbation-directions")
            return random_directions(run.w, self.draws, stream), self.radii, "random unit directions"
        uphill = unit(run.setup.objective.full_gradient(run.w, data))
        both_ways = sorted({sign * radius + 0.0 for radius in self.radii for sign in (-1, 1)})  # + 0.0: no -0.0
        return [uphill], both_ways, "direction of this loss's gradient, negative radii downhill"
