"""Sharpness and the low-pass-filter measure of the final global model."""

from typing import ClassVar

import pandas as pd
from pydantic import Field

from analysis.analyses.analysed_run import AnalysedRun
from analysis.analyses.base import ByAscent, OnImages
from analysis.measures.flatness import low_pass_filter, sharpness
from bench.numerics.streams import torch_stream


class Flatness(ByAscent, OnImages):
    """Sharpness in a ball, and the low-pass-filter measure LPF, of the final global model."""

    name: ClassVar[str] = "flatness"
    columns: ClassVar[tuple[str, ...]] = ("metric", "value", "stderr")

    rho: float = Field(default=0.1, gt=0, description="radius ρ of the ball")
    sigma: float = Field(default=0.05, gt=0, description="standard deviation of the LPF's Gaussian")
    draws: int = Field(default=50, ge=2, description="Monte Carlo draws of the LPF")

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per measure."""
        data, loss = run.sample(self.data, self.images)
        objective, w = run.setup.objective, run.w
        lpf = low_pass_filter(
            objective, w, data,
            sigma=self.sigma, draws=self.draws, stream=torch_stream(run.config.seed, "low-pass-filter"),
            track=lambda draws: run.progress(draws, "draw of the LPF", self.draws),
        )  # fmt: skip
        sharp = sharpness(objective, w, data, self.rho, self.ascent)
        rows = [
            ("lpf", lpf.value, lpf.standard_error, f"{self.draws} draws, sigma {self.sigma:g}, {loss}"),
            ("sharpness", sharp, None, f"{self.ascent.description(self.rho)}, {loss}"),
        ]
        return pd.DataFrame(rows, columns=["metric", "value", "stderr", "definition"])
