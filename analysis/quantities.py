"""What a table may show: each quantity's tidy file, name, unit, and which direction is better."""

from dataclasses import dataclass
from typing import Literal

from bench.errors import unknown

Better = Literal["higher", "lower", "none"]


@dataclass(frozen=True)
class Quantity:
    """One quantity: in `metrics` it is a column, one value per round; in analyses rows, one per run."""

    file: str
    title: str
    better: Better


QUANTITIES = {
    "test_accuracy": Quantity("metrics", "test accuracy (%)", "higher"),
    "test_loss": Quantity("metrics", "test loss", "lower"),
    "train_loss": Quantity("metrics", "training loss", "lower"),
    "local_loss": Quantity("metrics", "mean local loss", "lower"),
    "client_drift": Quantity("metrics", "client drift", "none"),
    "lambda_max": Quantity("hessian", "largest Hessian eigenvalue λ_max", "lower"),
    "lambda_ratio_1_5": Quantity("hessian", "eigenvalue ratio λ_1/λ_5", "lower"),
    "lambda_residual": Quantity("hessian", "residual of the λ_max eigenpair", "none"),
    "lambda_converged": Quantity("hessian", "whether Lanczos converged", "none"),
    "trace": Quantity("spectrum", "trace of the Hessian", "lower"),
    "lpf": Quantity("flatness", "low-pass-filter loss LPF", "lower"),
    "flatness_discrepancy": Quantity("discrepancy", "flatness discrepancy Δ_F", "lower"),
    "sharpness": Quantity("flatness", "sharpness", "lower"),
}


def quantity(name: str) -> Quantity:
    """A quantity by its name; a `UserError` suggests the nearest."""
    if name not in QUANTITIES:
        raise unknown("metric", name, QUANTITIES)
    return QUANTITIES[name]
