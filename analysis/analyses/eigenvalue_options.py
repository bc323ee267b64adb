"""Options of analyses that compute eigenvalues of Hessians, and the computation that they ask for."""

from pydantic import Field
from torch import Tensor

from analysis.analyses.base import Analysis
from analysis.hessian import Estimator, Format, Spectrum, in_format, top_eigenvalues
from analysis.subject import Subject
from bench.engine.objective import Batched


class EigenvalueOptions(Analysis):
    """How eigenvalues are estimated."""

    estimator: Estimator = Field(
        default="lanczos", description="lanczos, or power: power iteration with deflation, as published numbers have it"
    )
    tolerance: float = Field(default=1e-3, gt=0, description="largest residual |Hv - λv| in units of |λ|")
    max_products: int = Field(default=1000, ge=1, description="Hessian products after which Lanczos gives up")
    steps: int = Field(default=20, ge=1, description="power iterations per eigenvalue, at most")
    dtype: Format = Field(default="float32", description="number format of the products: float32 or float64")

    @property
    def how(self) -> str:
        """For definitions."""
        name = "Lanczos" if self.estimator == "lanczos" else f"power iteration of at most {self.steps} steps"
        return f"{name}, {self.dtype}"

    def spectrum(self, subject: Subject, w: Tensor, data: Batched, k: int, whose: str) -> Spectrum:
        """The k largest eigenvalues at w; a line tells how many of them are not as exact as asked for."""
        objective, at, given = in_format(subject.bench.objective, w, data, self.dtype)
        found = top_eigenvalues(
            objective, at, given, k,
            tolerance=self.tolerance, estimator=self.estimator, steps=self.steps, max_products=self.max_products,
            counted=lambda numbers: subject.progress(iter(numbers), f"{whose}: step"),
        )  # fmt: skip
        if not found.converged:
            failed = k - sum(found.met)
            subject.tell(
                f"seed {subject.run.config.seed}: {whose}: {failed} of {k} eigenvalues have residuals above "
                f"{self.tolerance:g}·|λ| after {found.products} products"
            )
        return found
