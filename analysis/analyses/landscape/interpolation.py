"""Loss and error on the line between two models: from the initial to the final one, or to another method's."""

from collections.abc import Sequence
from typing import ClassVar

import pandas as pd
from pydantic import Field
from torch import Tensor

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import OfLandscape, OnSubsets
from fedflat.analysis.analyses.scores import score_points
from fedflat.analysis.measures.directions import Family
from fedflat.analysis.measures.landscape import LandscapeGrid
from fedflat.bench.engine.objective import Objective
from fedflat.bench.input.bounds import MOST, Count
from fedflat.bench.models import build_model


class Interpolation(OfLandscape, OnSubsets):
    """Loss and error (percent) of (1 − t) w + t w' (Goodfellow et al. 2015)."""

    name: ClassVar[str] = "interpolation"
    columns: ClassVar[tuple[str, ...]] = ("t", "data", "loss", "error")

    towards: str | None = Field(
        default=None,
        description="a method or partition: from this run's final model (t = 0) to the final model of that method or "
        "partition (t = 1); null: from the initial model to the final one",
    )
    steps: Count = Field(default=20, description="equal steps from one model to the other")
    beyond: int = Field(default=5, ge=0, le=MOST, description="number of further steps beyond each model")

    def compared_labels(self) -> Sequence[str]:
        """The method or partition at the other end of the line."""
        return () if self.towards is None else (self.towards,)

    def applies_to(self, method: str, partition: str) -> bool:
        """False for runs at the other end of the line."""
        return self.towards not in (method, partition)

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per t and subset of the data."""
        others = self.compared_runs(run)
        if others:
            own = run.name_among(self.compared_labels())
            start, end, which = run.w, others[0].w, f"from the final model of {own} to {self.towards}'s"
        else:
            start, end, which = _initial(run), run.w, "from the initial to the final model"
        line = LandscapeGrid(([step / self.steps for step in range(-self.beyond, self.steps + self.beyond + 1)],))
        samples = self.samples(run)
        scores = score_points(run, self, Family(start, (end - start,)), line, samples)
        at = pd.DataFrame(line.points, columns=["t"])
        losses = {part: f"{sample.loss}, on the line {which}{self.points_by}" for part, sample in samples.items()}
        table = scores.join(at, on="point").assign(definition=scores["data"].map(losses))
        return table[[*at.columns, *scores.columns.drop("point"), "definition"]]


def _initial(run: AnalysedRun) -> Tensor:
    """The model before the first round: built anew, because it depends on the seed only."""
    config, dataset = run.config, run.setup.dataset
    module = build_model(config.model, dataset.image_shape, dataset.classes, config.seed)
    return Objective(module.to(run.device), buffer_mode=config.model.buffer_mode).initial()
