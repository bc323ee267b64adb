"""Sharpness and the low-pass-filter measure of the final global model."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd
from pydantic import Field

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import ByAscent, ByForwardPasses, OnImages
from fedflat.analysis.measures.flatness import low_pass_filter, sharpness
from fedflat.analysis.measures.forward_passes import ForwardPasses
from fedflat.bench.metrics.quantity import Quantity
from fedflat.bench.numerics.streams import torch_stream


class Flatness(ByAscent, OnImages, ByForwardPasses):
    """Sharpness in a ball, and the low-pass-filter measure LPF, of the final global model."""

    name: ClassVar[str] = "flatness"
    columns: ClassVar[tuple[str, ...]] = ("metric", "value", "stderr")
    quantities: ClassVar[Mapping[str, Quantity]] = {
        "lpf": Quantity("low-pass-filter loss LPF", "lower", short="LPF", of_runs=3, is_flatness=True),
        "sharpness": Quantity("sharpness", "lower", of_runs=4, is_flatness=True),
    }

    rho: float = Field(default=0.1, gt=0, description="radius ρ of the ball")
    sigma: float = Field(default=0.05, gt=0, description="standard deviation of the LPF's Gaussian")
    draws: int = Field(default=50, ge=2, description="Monte Carlo draws of the LPF")

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per measure; sharpness is computed in fp32, because it is a small difference of two losses."""
        data, loss = run.sample(self.data, self.images)
        objective, w = run.setup.objective, run.w
        passes = ForwardPasses(objective, self.precision, self.draws)
        lpf = low_pass_filter(
            passes, w, data,
            sigma=self.sigma, draws=self.draws, stream=torch_stream(run.config.seed, "low-pass-filter"),
            track=lambda draws: run.progress(draws, "draw of the LPF", self.draws),
        )  # fmt: skip
        sharp = sharpness(objective, w, data, self.rho, self.ascent)
        rows = [
            ("lpf", lpf.value, lpf.standard_error, f"{self.draws} draws, sigma {self.sigma:g}, {loss}"),
            ("sharpness", sharp, None, f"{self.ascent.description(self.rho)}, {loss}"),
        ]
        table = pd.DataFrame(rows, columns=["metric", "value", "stderr", "definition"])
        return table.join(pd.DataFrame([passes.differences]))  # in the first row, that of the LPF
