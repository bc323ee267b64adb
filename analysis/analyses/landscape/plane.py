"""Loss and error on the plane through three final models, of three methods or of three partitions."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import pandas as pd
from pydantic import Field, field_validator
from torch import Tensor

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import OfLandscape, OfOneSeed, OnSubsets
from fedflat.analysis.analyses.scores import score_points
from fedflat.analysis.measures.directions import plane_through
from fedflat.analysis.measures.landscape import LandscapeGrid, axis_around
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.input.bounds import Points
from fedflat.bench.input.errors import UserError


class PlaneModels(NamedTuple):
    """Names and flat parameters `[P]` of models, and a description of all of them."""

    names: Sequence[str]
    parameters: Sequence[Tensor]
    description: str


class ThroughModels(OfOneSeed, OfLandscape, OnSubsets):
    """Loss and error (percent) on the plane through three models of one setting."""

    columns: ClassVar[tuple[str, ...]] = ("x", "y", "model", "data", "loss", "error")

    points: Points = Field(default=21, description="grid points per direction")
    margin: float = Field(
        default=0.2,
        ge=0,
        description="how far the plane extends beyond the models on every side, in units of their extent",
    )

    @abstractmethod
    def models(self, run: AnalysedRun) -> PlaneModels:
        """The three models; the first one is the plane's origin."""

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """For each subset of the data, one row per grid point, then one per model, which is named in `model`.

        x and y are Euclidean distances from the first model.
        """
        names, parameters, description = self.models(run)
        family, places = plane_through(*parameters)
        axes = tuple(axis_around(values, self.margin, self.points) for values in zip(*places, strict=True))
        grid = LandscapeGrid(axes, places)
        samples = self.samples(run)
        scores = score_points(run, self, family, grid, samples)
        at = pd.DataFrame(grid.points, columns=["x", "y"])
        at["model"] = pd.Series(names, index=at.index[-len(names) :])
        losses = {
            part: f"{sample.loss}, on the plane through {description}{self.points_by}"
            for part, sample in samples.items()
        }
        table = scores.join(at, on="point").assign(definition=scores["data"].map(losses))
        return table[[*at.columns, *scores.columns.drop("point"), "definition"]]


class Plane(ThroughModels):
    """The final models of three methods (Caldarola et al. 2022, Figure 14), or of one method with three partitions
    (Figure 2, a and b); one of them is the analysed run's."""

    name: ClassVar[str] = "plane"

    through: tuple[str, ...] = Field(default=(), description="the two other methods, or partitions")

    @field_validator("through")
    @classmethod
    def _two(cls, through: tuple[str, ...]) -> tuple[str, ...]:
        if through and len(through) != 2:
            raise UserError(
                f"plane.through = [{', '.join(through)}] (allowed: the labels of two other methods or partitions)"
            )
        return through

    def check(self, evaluation: Evaluation) -> None:
        """The two others must be named, because no default fits all experiments."""
        if not self.through:
            raise UserError(
                "the analysis plane needs the models of three methods or partitions: list the other two in its option "
                "through"
            )

    def compared_labels(self) -> Sequence[str]:
        """The two other methods or partitions."""
        return self.through

    def applies_to(self, method: str, partition: str) -> bool:
        """False for runs of the two others."""
        return method not in self.through and partition not in self.through

    def models(self, run: AnalysedRun) -> PlaneModels:
        """This run's final model first, then the two others."""
        runs = [run, *self.compared_runs(run)]
        names = [run.name_among(self.through), *self.through]
        return PlaneModels(names, [run.w for run in runs], f"the final models of {', '.join(names)}")
