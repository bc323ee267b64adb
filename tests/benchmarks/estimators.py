"""The largest Hessian eigenvalues of a finished run by each estimator, with residuals and processor time."""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.measures.curvature.hessian import TopEigenvalues, top_eigenvalues
from fedflat.bench.training.run_directory import RunDirectory
from tests.benchmarks.report import Cell, Table

ESTIMATORS: dict[str, dict[str, Any]] = {
    "lanczos (tolerance 1e-3)": {"estimator": "lanczos"},
    "power (20 steps)": {"estimator": "power"},
    "pyhessian (100 iterations, change 1e-3)": {"estimator": "pyhessian"},
    "pyhessian, 1000 iterations, change 1e-6": {"estimator": "pyhessian", "iterations": 1000, "change": 1e-6},
}
"""Options of `top_eigenvalues`; what stands in brackets is a default."""

HEADER = (
    "estimator",
    "λ_1",
    "λ_5",
    "λ_1/λ_5",
    "residual of λ_1 / λ_1",
    "residual of λ_5 / λ_5",
    "products",
    "processor s",
)


def measure(run: AnalysedRun, images: int | None) -> Table:
    """The first five eigenvalues at the run's final model, on training images."""
    data, loss = run.sample("train", images)
    rows: list[tuple[Cell, ...]] = []
    for name, options in ESTIMATORS.items():
        began = time.process_time()
        found = top_eigenvalues(run.setup.objective, run.w, data, 5, **options)
        rows.append((name, *_numbers(found), time.process_time() - began))
    config = run.config
    about = (
        f"{config.model.name}, {run.w.numel():,} parameters, after {config.training.rounds} rounds of "
        f"{config.method.recipe.name} on {config.dataset.label}, {config.partition.label}; {loss}; float32, one thread."
    )
    return Table(about, HEADER, rows)


def _numbers(found: TopEigenvalues) -> tuple[Cell, ...]:
    (first, *_, fifth), residuals = found.eigenvalues, found.residuals
    return (
        f"{first:.4f}", f"{fifth:.4f}", f"{found.ratio():.4f}", f"{residuals[0] / first:.1e}",
        f"{residuals[4] / fifth:.1e}", found.products,
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.estimators", description=__doc__)
    parser.add_argument("run", type=Path, help="a run directory, .../seed-0")
    parser.add_argument("--images", type=int, help="number of training images; default: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(measure(AnalysedRun(RunDirectory(options.run), torch.device("cpu")), options.images).markdown())


if __name__ == "__main__":
    main()
