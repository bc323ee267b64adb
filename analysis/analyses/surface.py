"""Loss and error on a filter-normalised random plane around the final global model."""

from collections.abc import Sequence
from itertools import product
from typing import ClassVar

import pandas as pd
from pydantic import Field, field_validator

from analysis.analyses.base import OfOneSeed, OnImages
from analysis.directions import Biases, Family, filter_normalised_directions
from analysis.landscape import symmetric_axis
from analysis.scores import score_points
from analysis.subject import Subject
from bench.engine.streams import torch_stream
from bench.errors import UserError


class Surface(OfOneSeed, OnImages):
    """Loss and error (percent) on a filter-normalised random plane; the same Gaussian draws for every method."""

    name: ClassVar[str] = "surface"
    columns: ClassVar[tuple[str, ...]] = ("a", "b", "loss", "error")

    extent: float = Field(default=1.0, gt=0, description="the plane spans [-extent, extent] in both directions")
    points: int = Field(
        default=21, ge=3, description="grid points per direction; odd, so that the model is one of them"
    )
    biases: Biases = Field(
        default="zero", description="zero: biases and normalisation stay as they are; normalised: each as one filter"
    )
    orthogonal: bool = Field(default=False, description="whether the directions are made orthogonal, filter by filter")
    reference: str | None = Field(
        default=None,
        description="a method whose filters' norms scale the directions of all models; null: each model's own",
    )

    @field_validator("points")
    @classmethod
    def _odd(cls, points: int) -> int:
        if points % 2 == 0:
            raise UserError(f"surface.points = {points}: an odd number, so that the model is one of the grid points")
        return points

    def compared(self) -> Sequence[str]:
        """The method of reference."""
        return () if self.reference is None else (self.reference,)

    def of_run(self, subject: Subject) -> pd.DataFrame:
        """One row per grid point, a outermost."""
        scale = next((other.w for other in self.beside(subject)), subject.w)
        directions = filter_normalised_directions(
            subject.bench.objective.layout,
            scale,
            torch_stream(subject.run.config.seed, "surface-directions"),
            biases=self.biases,
            orthogonal=self.orthogonal,
        )
        sample = subject.sample(self.data, self.images)
        axis = symmetric_axis(self.extent, self.points)
        points = list(product(axis, axis))
        scores = score_points(subject, Family(subject.w, directions), points, {self.data: sample}, self.asked())
        table = pd.DataFrame(points, columns=["a", "b"]).join(scores[["loss", "error"]])
        return table.assign(definition=f"{sample.loss}; {self._directions()}")

    def _directions(self) -> str:
        options = [
            "orthogonal" * self.orthogonal,
            "biases as filters" * (self.biases == "normalised"),
            "" if self.reference is None else f"filters of {self.reference}",
        ]
        return ", ".join(["filter-normalised directions", *filter(None, options)])
