"""What every analysis is: a question asked of a finished run, with its options and the columns of its answer."""

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import pandas as pd
from pydantic import Field
from torch import Tensor

from analysis.analyses.subject import Part, Sample, Subject
from analysis.measures.flatness import Ascent
from analysis.measures.hessian import Estimator, Format, Spectrum, in_format, top_eigenvalues
from bench.data.sources.base import Source
from bench.engine.objective import Batched
from bench.experiments.run_config import Evaluation
from bench.input.errors import UserError
from bench.input.frozen import Frozen


class Analysis(Frozen):
    """A question asked of a finished run. Its fields are its options; each has a default."""

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    """Those of its tidy file that readers rely on, beside those which name the run and `definition`, which says what
    was computed on which data."""
    of_diverged: ClassVar[bool] = False
    """Whether a run that diverged has an answer too; else it has no rows."""

    of_final_model: ClassVar[bool] = True
    """Whether it is of the global model after the last round; else its definitions say of which."""

    def options(self) -> dict[str, str]:
        """All options as JSON, as commands and tidy files state them; defaults too, since the code may change one."""
        return {name: json.dumps(value) for name, value in self.model_dump(mode="json").items()}

    def asked(self) -> dict[str, Any]:
        """The analysis and all its options, as plain values."""
        return {"analysis": self.name, **self.model_dump(mode="json")}

    @abstractmethod
    def of_run(self, subject: Subject) -> pd.DataFrame:
        """The answer of one run."""

    def check(self, evaluation: Evaluation) -> None:
        """A `UserError` if runs that are evaluated so do not keep what this analysis needs."""

    def chosen(self, seeds: Sequence[int]) -> Sequence[int]:
        """The seeds of a cell that are analysed; a `UserError` if it has not those which are asked for."""
        return seeds

    def compared(self) -> Sequence[str]:
        """Labels of what is compared with: another method of the experiment in the same setting, or another partition
        with the same method. Their runs are needed too."""
        return ()

    def other_data(self, source: Source) -> Sequence[str]:
        """The names of published data sets that it needs beside the run's own, by the latter's source."""
        return ()

    def is_for(self, method: str, partition: str) -> bool:
        """Whether it can be asked of the cells of a method with a partition, by their labels."""
        return True

    def beside(self, subject: Subject) -> Sequence[Subject]:
        """Those runs; a `UserError` if others are given, or runs of other models or data."""
        needed, given = self.compared(), [other.labels for other in subject.beside]
        if len(given) != len(needed) or any(label not in labels for label, labels in zip(needed, given, strict=True)):
            if not needed:
                raise UserError(f"{self.name} with these options takes no runs beside (--beside)")
            told = ", ".join(" with ".join(labels) for labels in given) or "none"
            raise UserError(
                f"{self.name} with these options needs runs beside of: {', '.join(needed) or 'none'}; "
                f"--beside gives: {told}"
            )
        config = subject.run.config
        for label, other in zip(needed, subject.beside, strict=True):
            differs = "method" if label == other.labels[0] else "partition"
            for part in ("model", "dataset", *{"method", "partition", "participation"} - {differs}):
                if getattr(other.run.config, part) != getattr(config, part):
                    raise UserError(f"'{other.run.path}' has another {part} than '{subject.run.path}'")
        return subject.beside


class OnImages(Analysis):
    """An analysis of a loss over images of the run's data set, never augmented."""

    data: Part = Field(default="train", description="train or test images")
    images: int | None = Field(
        default=None, ge=1, description="so many, drawn by the seed, the same for all methods; null: all"
    )


class OnParts(Analysis):
    """An analysis of models on training and test images, never augmented."""

    data: tuple[Part, ...] = Field(default=("train", "test"), min_length=1, description="train or test images, or both")
    images: int | None = Field(
        default=None, ge=1, description="so many of each, drawn by the seed, the same for all methods; null: all"
    )

    def samples(self, subject: Subject) -> dict[Part, Sample]:
        """The images of each part."""
        return {part: subject.sample(part, self.images) for part in self.data}


class OnHeldImages(Analysis):
    """An analysis of the global objective F = Σ m_i/m F_i: each image as often as clients hold it."""

    images: int | None = Field(
        default=None, ge=1, description="so many of all clients' images for the global objective; null: all of them"
    )


class ByAscent(Analysis):
    """An analysis of sharpness, max over ‖δ‖ ≤ ρ of F(w + δ) − F(w), which is sought by projected gradient ascent."""

    steps: int = Field(default=1, ge=1, description="ascent steps; of several, the best point counts")
    step: float = Field(default=1.0, gt=0, description="length of an ascent step, in units of the ball's radius")

    @property
    def ascent(self) -> Ascent:
        """How the maximum is sought."""
        return Ascent(self.steps, self.step)


class OfOneSeed(Analysis):
    """An analysis that shows one run of a cell."""

    seed: int | None = Field(default=None, ge=0, description="the run that is shown; null: the cell's first seed")

    def chosen(self, seeds: Sequence[int]) -> Sequence[int]:
        """The one seed."""
        if self.seed is not None and self.seed not in seeds:
            raise UserError(f"{self.name}.seed = {self.seed}, but the seeds are {', '.join(map(str, seeds))}")
        return [seeds[0] if self.seed is None else self.seed]


class OfEigenvalues(Analysis):
    """An analysis of Hessian eigenvalues, and how they are estimated."""

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


def needs_states(name: str, evaluation: Evaluation) -> None:
    """A `UserError` if no state is kept."""
    if evaluation.snapshot_every is None:
        raise UserError(
            f"{name} needs states of the runs, but evaluation.snapshot_every is null: "
            "the experiment keeps no states; set it"
        )
