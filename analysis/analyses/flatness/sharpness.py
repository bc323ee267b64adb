"""Sharpness of the final global model in balls of several radii, by projected gradient ascent."""

from typing import Annotated, ClassVar

import pandas as pd
from pydantic import Field

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import ByAscent, OnImages
from fedflat.analysis.measures.flatness import sharpness
from fedflat.bench.input.bounds import MOST_ENTRIES, Count


class Sharpness(ByAscent, OnImages):
    """Largest increase of the loss in a ball around the final global model, as a function of the ball's radius."""

    name: ClassVar[str] = "sharpness"
    columns: ClassVar[tuple[str, ...]] = ("radius", "sharpness", "first_order")

    radii: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        default=(0.05, 0.1, 0.2, 0.5, 1), min_length=1, max_length=MOST_ENTRIES, description="radii of the balls"
    )
    steps: Count = Field(default=10, description="ascent steps; the best point of all steps counts")

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per radius. `first_order` is ρ‖∇F(w)‖, the maximum to first order."""
        data, loss = run.sample(self.data, self.images)
        objective, w = run.setup.objective, run.w
        slope = float(objective.full_gradient(w, data).norm())
        definition = f"{self.ascent.description_for_radii}, {loss}"
        rows = [
            (rho, sharpness(objective, w, data, rho, self.ascent), rho * slope, definition)
            for rho in run.progress(self.radii, "radius")
        ]
        return pd.DataFrame(rows, columns=["radius", "sharpness", "first_order", "definition"])
