"""Loss of the final global model along random perturbations."""

from typing import Annotated, ClassVar

import pandas as pd
from pydantic import Field

from analysis.analyses.base import OnImages
from analysis.flatness import loss_along_perturbation
from analysis.subject import Subject
from bench.engine.streams import torch_stream


class Perturbation(OnImages):
    """Loss of the final global model moved along random directions, the same ones for every method."""

    name: ClassVar[str] = "perturbation"
    columns: ClassVar[tuple[str, ...]] = ("radius", "draw", "loss")

    radii: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        default=(0, 1, 2, 3, 4, 5), min_length=1, description="lengths of the perturbations"
    )
    draws: int = Field(default=10, ge=1, description="random directions")

    def of_run(self, subject: Subject) -> pd.DataFrame:
        """One row per direction and radius."""
        data, loss = subject.sample(self.data, self.images)
        table = loss_along_perturbation(
            subject.bench.objective, subject.w, data,
            radii=self.radii, draws=self.draws,
            stream=torch_stream(subject.run.config.seed, "perturbation-directions"),
        )  # fmt: skip
        return table.assign(definition=f"{loss}; random unit directions")
