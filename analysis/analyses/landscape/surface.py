"""Loss and error on a filter-normalised random plane around the final global model, or around a local model."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import pandas as pd
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from fedflat.analysis.analyses.analysed_run import AnalysedRun, Sample
from fedflat.analysis.analyses.base import OfLandscape, OfOneSeed, OnImages
from fedflat.analysis.analyses.scores import score_points
from fedflat.analysis.measures.directions import Biases, Family, filter_normalised_directions
from fedflat.analysis.measures.landscape import LandscapeGrid, symmetric_axis
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.input.bounds import MOST_POINTS
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import torch_stream


class Surface(OfOneSeed, OfLandscape, OnImages):
    """Loss and error (percent) on a filter-normalised random plane; the same Gaussian draws for every method."""

    name: ClassVar[str] = "surface"
    columns: ClassVar[tuple[str, ...]] = ("a", "b", "loss", "error")

    model: Literal["global", "local"] = Field(
        default="global",
        description="global: the final global model; local: the model of the first participant of the last round with "
        "stored local models, on all training images of that client",
    )
    extent: float = Field(default=1.0, gt=0, description="the plane spans [-extent, extent] in both directions")
    points: int = Field(
        default=21, ge=3, le=MOST_POINTS, description="grid points per direction; odd, so that the model is one of them"
    )
    biases: Biases = Field(
        default="zero",
        description="zero: biases and normalisation parameters do not change; normalised: each counts as one filter",
    )
    orthogonal: bool = Field(
        default=False, description="whether the second direction is orthogonal to the first one, filter by filter"
    )
    reference: str | None = Field(
        default=None,
        description="a method whose filter norms scale the directions of all models; null: the norms of each model",
    )

    @field_validator("points")
    @classmethod
    def _odd(cls, points: int) -> int:
        if points % 2 == 0:
            raise UserError(
                f"surface.points = {points} (allowed: odd numbers, so that the model is one of the grid points)"
            )
        return points

    @model_validator(mode="after")
    def _own_images(self) -> "Surface":
        if self.model == "local" and (self.data != "train" or self.images is not None):
            raise UserError(
                "surface.model = local uses all training images of its client: data and images must not be set"
            )
        return self

    def check(self, evaluation: Evaluation) -> None:
        """A local model must be stored."""
        if self.model == "local" and evaluation.local_models is None:
            raise UserError(
                "surface.model = local needs local models of the runs, but evaluation.local_models is null: "
                "the experiment stores none; set it to last"
            )

    def compared_labels(self) -> Sequence[str]:
        """The reference method."""
        return () if self.reference is None else (self.reference,)

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per grid point; b varies fastest."""
        w, sample = self._centre(run)
        scale = next((other.w for other in self.compared_runs(run)), w)
        directions = filter_normalised_directions(
            run.setup.objective.layout,
            scale,
            torch_stream(run.config.seed, "surface-directions"),
            biases=self.biases,
            orthogonal=self.orthogonal,
        )
        grid = LandscapeGrid((symmetric_axis(self.extent, self.points),) * 2)
        scores = score_points(run, self, Family(w, directions), grid, {self.data: sample})
        table = pd.DataFrame(grid.points, columns=["a", "b"]).join(scores.drop(columns=["point", "data"]))
        return table.assign(definition=f"{sample.loss}; {self._directions()}{self.points_by}")

    def _centre(self, run: AnalysedRun) -> tuple[Tensor, Sample]:
        """The model `[P]` at the centre, and the images; a `UserError` if the model is not stored, or not finite."""
        if self.model == "global":
            return run.w, run.sample(self.data, self.images)
        config = run.config
        finished = config.rounds_of_local_models[-1] if config.rounds_of_local_models else config.training.rounds
        models = run.directory.local_models(finished, run.device)
        client = next(iter(models))
        what = f"client {client}'s model of round {finished}"
        run.check_finite(models[client], what)
        images = run.client_batches(client)
        count = len(run.setup.split[client])
        return models[client], Sample(images, f"{what}: mean cross-entropy of all its {count} training images")

    def _directions(self) -> str:
        options = [
            "orthogonal" * self.orthogonal,
            "biases as filters" * (self.biases == "normalised"),
            "" if self.reference is None else f"filters of {self.reference}",
        ]
        return ", ".join(["filter-normalised directions", *filter(None, options)])
