"""Loss on a filter-normalised random plane around the final global model."""

from typing import ClassVar

import pandas as pd
from pydantic import Field, field_validator

from analysis.analyses.base import OfOneSeed, OnImages
from analysis.landscape import filter_normalised_directions, plane
from analysis.subject import Subject
from bench.engine.streams import torch_stream
from bench.errors import UserError


class Surface(OfOneSeed, OnImages):
    """Loss on a filter-normalised random plane around the final global model; the same draws for every method."""

    name: ClassVar[str] = "surface"
    columns: ClassVar[tuple[str, ...]] = ("a", "b", "loss")

    extent: float = Field(default=1.0, gt=0, description="the plane spans [-extent, extent] in both directions")
    points: int = Field(
        default=21, ge=3, description="grid points per direction; odd, so that the model is one of them"
    )

    @field_validator("points")
    @classmethod
    def _odd(cls, points: int) -> int:
        if points % 2 == 0:
            raise UserError(f"surface.points = {points}: an odd number, so that the model is one of the grid points")
        return points

    def of_run(self, subject: Subject) -> pd.DataFrame:
        """One row per grid point."""
        data, loss = subject.sample(self.data, self.images)
        objective, w = subject.bench.objective, subject.w
        stream = torch_stream(subject.run.config.seed, "surface-directions")
        d1, d2 = filter_normalised_directions(objective.layout, w, stream)
        table = plane(objective, w, data, d1=d1, d2=d2, extent=self.extent, points=self.points)
        return table.assign(definition=f"{loss}; filter-normalised directions")
