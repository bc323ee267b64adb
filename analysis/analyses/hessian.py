"""The largest eigenvalues of the loss's Hessian at the final global model."""

from typing import ClassVar

import pandas as pd
from pydantic import Field

from analysis.analyses.base import OnImages
from analysis.hessian import top_eigenvalues
from analysis.subject import Subject


class Hessian(OnImages):
    """The largest eigenvalues of the Hessian at the final global model, and their ratio λ_1/λ_5."""

    name: ClassVar[str] = "hessian"
    columns: ClassVar[tuple[str, ...]] = ("metric", "value", "stderr")

    eigenvalues: int = Field(default=5, ge=5, le=50, description="how many of the largest; λ_1/λ_5 needs five")
    tolerance: float = Field(default=1e-3, gt=0, description="largest residual |Hv - λv| in units of |λ|")

    def of_run(self, subject: Subject) -> pd.DataFrame:
        """λ_max, λ_1/λ_5, the first residual, and whether all converged."""
        data, loss = subject.sample(self.data, self.images)
        spectrum = top_eigenvalues(subject.bench.objective, subject.w, data, self.eigenvalues, tolerance=self.tolerance)
        lanczos = f"Lanczos, {loss}"
        rows = [
            ("lambda_max", spectrum.eigenvalues[0], lanczos),
            ("lambda_ratio_1_5", spectrum.ratio(5), lanczos),
            ("lambda_residual", spectrum.residuals[0], f"|Hv - lambda v| of the largest eigenvalue, {lanczos}"),
            ("lambda_converged", float(spectrum.converged), f"1 if all {self.eigenvalues} eigenvalues, {lanczos}"),
        ]
        return pd.DataFrame(rows, columns=["metric", "value", "definition"]).assign(stderr=float("nan"))
