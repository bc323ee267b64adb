"""Density of all eigenvalues of the loss's Hessian at the final global model, and the Hessian's trace."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd
from pydantic import Field

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import OnImages
from fedflat.analysis.measures.curvature.hessian import NumberFormat, hessian_product, in_format
from fedflat.analysis.measures.curvature.spectral_density import spectral_density
from fedflat.bench.input.bounds import MOST_ENTRIES
from fedflat.bench.metrics.quantity import Quantity


class Spectrum(OnImages):
    """Spectral density and trace of the Hessian at the final global model, by stochastic Lanczos quadrature."""

    name: ClassVar[str] = "spectrum"
    columns: ClassVar[tuple[str, ...]] = ("metric", "eigenvalue", "value", "stderr")
    quantities: ClassVar[Mapping[str, Quantity]] = {
        "trace": Quantity("trace of the Hessian", "lower", of_runs=1, is_flatness=True),
    }

    probes: int = Field(
        default=10, ge=2, le=MOST_ENTRIES, description="number of random sign vectors, the same for all methods"
    )
    steps: int = Field(
        default=80,
        ge=1,
        le=MOST_ENTRIES,
        description="Lanczos steps from each random vector; each step needs one Hessian product",
    )
    width: float = Field(
        default=0.005,
        ge=0.0005,
        le=1,
        description="standard deviation of the Gaussian of one eigenvalue, in units of the spectrum's range",
    )
    dtype: NumberFormat = Field(default="float32", description="number format of the products: float32 or float64")

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """Rows for the trace, the Gaussian's σ and the peak of a single eigenvalue; then the density on a grid."""
        data, loss = run.sample(self.data, self.images)
        objective, w, converted = in_format(run.setup.objective, run.w, data, self.dtype)
        found = spectral_density(
            hessian_product(objective, w, converted), w,
            probes=run.progress(range(self.probes), "spectrum: random vector"),
            steps=self.steps, width=self.width, seed=run.config.seed,
        )  # fmt: skip
        quadrature = f"{self.probes} random vectors, {self.steps} Lanczos steps, {self.dtype}, {loss}"
        rows: list[tuple[str, float | None, float, float | None, str]] = [
            ("trace", None, found.trace, found.trace_stderr, f"Hutchinson's estimate, {quadrature}"),
            ("density_sigma", None, found.sigma, None, f"standard deviation of an eigenvalue's Gaussian, {quadrature}"),
            ("density_single", None, found.single, None, f"peak of a single eigenvalue, {quadrature}"),
        ]
        points = zip(found.eigenvalue, found.density, found.stderr, strict=True)
        rows += [("density", *point, f"stochastic Lanczos quadrature, {quadrature}") for point in points]
        return pd.DataFrame(rows, columns=[*self.columns, "definition"])
