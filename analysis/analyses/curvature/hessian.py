"""The largest eigenvalues of the loss's Hessian at the final global model."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd
from pydantic import Field

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import OfEigenvalues, OnImages
from fedflat.bench.metrics.quantity import Quantity


class Hessian(OfEigenvalues, OnImages):
    """The largest eigenvalues of the Hessian at the final global model, and the ratio λ_1/λ_5."""

    name: ClassVar[str] = "hessian"
    columns: ClassVar[tuple[str, ...]] = ("metric", "index", "value", "residual")
    quantities: ClassVar[Mapping[str, Quantity]] = {
        "lambda_max": Quantity("largest Hessian eigenvalue λ_max", "lower", short="λ_max", of_runs=0, is_flatness=True),
        "lambda_ratio_1_5": Quantity("eigenvalue ratio λ_1/λ_5", "lower"),
        "lambda_residual": Quantity("residual of the λ_max eigenpair"),
        "lambda_converged": Quantity("whether Lanczos converged"),
    }

    eigenvalues: int = Field(
        default=5, ge=5, le=50, description="number of eigenvalues, from the largest; λ_1/λ_5 needs five"
    )

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """Rows for λ_max, λ_1/λ_5, the residual of λ_max, whether all residuals are within the tolerance, and for each
        eigenvalue."""
        data, loss = run.sample(self.data, self.images)
        found = self.top_eigenvalues(run, run.w, data, self.eigenvalues, "Hessian")
        definition = f"{self.how}, {loss}"
        largest, residual, converged = found.eigenvalues[0], found.residuals[0], float(found.converged)
        limit = f"1 if all {self.eigenvalues} residuals are at most {self.tolerance:g}·|λ|"
        rows: list[tuple[str, int | None, float, float | None, str]] = [
            ("lambda_max", None, largest, residual, definition),
            ("lambda_ratio_1_5", None, found.ratio(5), None, definition),
            ("lambda_residual", None, residual, None, f"|Hv - lambda v| of the largest eigenvalue, {definition}"),
            ("lambda_converged", None, converged, None, f"{limit}, {definition}"),
        ]
        pairs = zip(found.eigenvalues, found.residuals, strict=True)
        rows += [("eigenvalue", i, value, distance, definition) for i, (value, distance) in enumerate(pairs, 1)]
        table = pd.DataFrame(rows, columns=[*self.columns, "definition"])
        return table.astype({"index": "Int64"})
