"""How the analyses of an experiment are done: `paper_tables/<experiment>/analyses.yaml`, validated."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from bench.errors import UserError
from bench.experiments import experiment_files, read_yaml
from bench.frozen import Frozen


class Flatness(Frozen):
    """Flatness of the final global model: Hessian, sharpness, flatness discrepancy, LPF."""

    samples: int = Field(ge=1, description="training images used, drawn once per seed, the same for all methods")
    eigenvalues: int = Field(ge=5, description="how many of the largest Hessian eigenvalues; λ_1/λ_5 needs five")
    tolerance: float = Field(gt=0, description="relative accuracy of the eigenvalues")
    rho: float = Field(gt=0, description="radius of the sharpness and of the flatness discrepancy")
    sigma: float = Field(gt=0, description="standard deviation of the LPF's Gaussian")
    draws: int = Field(ge=2, description="Monte Carlo draws of the LPF")


class Drift(Frozen):
    """Perturbation drift and global sharpness at the kept rounds."""

    rho: float = Field(gt=0, description="radius of the global sharpness")


class Surface(Frozen):
    """Loss on a filter-normalised random plane around the final global model."""

    seed: int | None = Field(default=None, ge=0, description="the run that is shown; null: the cell's first seed")
    extent: float = Field(gt=0, description="the plane spans [-extent, extent] in both directions")
    points: int = Field(ge=3, description="grid points per direction; odd, so that the model is one of them")

    @field_validator("points")
    @classmethod
    def _odd(cls, points: int) -> int:
        if points % 2 == 0:
            raise UserError(f"surface.points = {points}: an odd number, so that the model is one of the grid points")
        return points


class Line(Frozen):
    """Loss of the final global model along random perturbations."""

    radii: tuple[Annotated[float, Field(ge=0)], ...] = Field(min_length=1, description="lengths of the perturbations")
    draws: int = Field(ge=1, description="random directions, the same for all methods")


class AnalysisSettings(Frozen):
    """One section per analysis; their names are the names of the analyses."""

    flatness: Flatness
    drift: Drift
    surface: Surface
    perturbation: Line


def load_settings(experiment: str) -> AnalysisSettings:
    """The settings that stand beside the experiment's file, or beside that which it extends, as analyses.yaml."""
    places = [file.with_name("analyses.yaml") for file in experiment_files(experiment)]
    file: Path = next((place for place in places if place.is_file()), places[0])
    return AnalysisSettings.parse(read_yaml(file), where=str(file))
