"""The base class of all analyses, and base classes for the options that several of them share."""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import pandas as pd
from pydantic import Field
from torch import Tensor

from fedflat.analysis.analyses.analysed_run import AnalysedRun, Sample
from fedflat.analysis.measures.curvature.hessian import (
    Estimator,
    NumberFormat,
    TopEigenvalues,
    in_format,
    top_eigenvalues,
)
from fedflat.analysis.measures.curvature.pyhessian_power import NAME as PYHESSIAN
from fedflat.analysis.measures.flatness import Ascent
from fedflat.analysis.measures.forward_passes import ForwardPrecision
from fedflat.analysis.measures.packaged_landscape import NAME as LOSS_LANDSCAPES
from fedflat.bench.data.dataset import Subset
from fedflat.bench.data.sources.base import Source
from fedflat.bench.engine.objective import Batched
from fedflat.bench.experiments.address import RUN_IDS
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.experiments.sections.own_analysis import OwnAnalysis
from fedflat.bench.input.bounds import ALL_IS_NULL, Count, Images, Seed
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.metrics.quantity import Quantity


class Analysis(Frozen):
    """A computation on a finished run. Its fields are its options; each has a default."""

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    """The columns of its tidy file that tables and figures read. The file also has columns that name the run,
    `definition` (what was computed, on which data), and the provenance."""
    pictures: ClassVar[tuple[str, ...]] = ()
    """The columns of PNG files, which are stored next to the tidy file."""
    quantities: ClassVar[Mapping[str, Quantity]] = {}
    """What its rows with a `metric` of these names measure: one value per run, which tables can show."""
    of_diverged: ClassVar[bool] = False
    """Whether it also analyses runs that diverged; if not, they have no rows."""

    of_stopped: ClassVar[bool] = False
    """Whether it also analyses runs that stopped early; if not, they have no rows."""

    of_label_maps: ClassVar[bool | None] = None
    """Whether it analyses runs of segmentation, whose pixels have labels, and not the images: True: only these; False:
    only others; None: both."""

    of_final_model: ClassVar[bool] = True
    """Whether it analyses the global model after the last round; if not, its definitions say which model."""

    own: ClassVar[OwnAnalysis | None] = None
    """The file of a user that defines it; None: FedFlat does."""

    def options(self) -> dict[str, str]:
        """All options as JSON, for commands and tidy files; defaults too, because a new version may change one."""
        return {name: json.dumps(value) for name, value in self.model_dump(mode="json").items()}

    def inputs(self) -> dict[str, str]:
        """The options, and the hash of the file of a user: what rows depend on besides runs and FedFlat's code."""
        return self.options() if self.own is None else {**self.options(), "code": json.dumps(self.own.code)}

    @property
    def in_commands(self) -> str:
        """How commands name it: its name, or file and class of a user's."""
        return self.name if self.own is None else self.own.reference

    @abstractmethod
    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """The rows of one run."""

    @classmethod
    def values(cls, rows: pd.DataFrame) -> pd.DataFrame:
        """Its `quantities` that are columns of tables of runs: one row per run, with `RUN_IDS`, from its tidy rows."""
        names = [name for name, one in cls.quantities.items() if one.of_runs is not None]
        wide = rows[rows["metric"].isin(names)].pivot(index=RUN_IDS, columns="metric", values="value")
        return wide.reindex(columns=names).reset_index()

    def check(self, evaluation: Evaluation) -> None:
        """A `UserError` if runs with these evaluation settings do not save what this analysis needs."""

    @classmethod
    def suits(cls, source: Source) -> bool:
        """Whether it can analyse runs on this data set."""
        return cls.of_label_maps in (None, source.label_maps)

    def check_data(self, source: Source) -> None:
        """A `UserError` if it cannot analyse runs on this data set."""
        if not self.suits(source):
            needed, given = ("pixels", "images") if self.of_label_maps else ("images", "pixels")
            raise UserError(
                f"{self.name} needs labels of {needed}, but the data set {source.label} has labels of {given} "
                "(allowed: for example hessian, flatness, surface, interpolation)"
            )

    def selected_seeds(self, seeds: Sequence[int]) -> Sequence[int]:
        """The seeds of a cell that are analysed; a `UserError` if the cell lacks a requested one."""
        return seeds

    def compared_labels(self) -> Sequence[str]:
        """Labels of the runs with which a run is compared: other methods in the same setting, or other partitions with
        the same method."""
        return ()

    def other_data(self, source: Source) -> Sequence[str]:
        """Names of published data sets that are needed in addition to the run's own data set `source`."""
        return ()

    def applies_to(self, method: str, partition: str) -> bool:
        """Whether it can analyse the cells of a method with a partition, given by their labels."""
        return True

    def compared_runs(self, run: AnalysedRun) -> Sequence[AnalysedRun]:
        """The runs of `compared_labels`; a `UserError` if the given runs are not these, or differ in another field of
        the setting."""
        needed, given = self.compared_labels(), [other.labels for other in run.compared_with]
        if len(given) != len(needed) or any(label not in labels for label, labels in zip(needed, given, strict=True)):
            if not needed:
                raise UserError(f"{self.name} with these options compares no runs: leave out --compare-with")
            names = ", ".join(" with ".join(labels) for labels in given) or "none"
            raise UserError(
                f"{self.name} with these options needs --compare-with for runs of: {', '.join(needed)} (given: {names})"
            )
        for label, other in zip(needed, run.compared_with, strict=True):
            differs = "method" if label == other.labels[0] else "partition"
            for field in ("model", "dataset", *{"method", "partition", "participation"} - {differs}):
                if getattr(other.config, field) != getattr(run.config, field):
                    raise UserError(f"'{other.directory.path}' and '{run.directory.path}' must have the same {field}")
        return run.compared_with


class OnImages(Analysis):
    """An analysis of a loss over images of the run's data set, without augmentation."""

    data: Subset = Field(default="train", description="train or test images")
    images: Annotated[Images | None, ALL_IS_NULL] = Field(
        examples=[1000],
        default=None,
        description="number of images, drawn by the seed, the same for all methods; null: all",
    )


class OnSubsets(Analysis):
    """An analysis of models on training and test images, without augmentation."""

    data: tuple[Subset, ...] = Field(
        default=("train", "test"), min_length=1, description="train or test images, or both"
    )
    images: Annotated[Images | None, ALL_IS_NULL] = Field(
        examples=[1000],
        default=None,
        description="number of images of each, drawn by the seed, the same for all methods; null: all",
    )

    def samples(self, run: AnalysedRun) -> dict[Subset, Sample]:
        """The images of each subset."""
        return {subset: run.sample(subset, self.images) for subset in self.data}


class OnGlobalObjective(Analysis):
    """An analysis of the global objective F = Σ m_i/m F_i, each image counted as often as clients hold it."""

    images: Annotated[Images | None, ALL_IS_NULL] = Field(
        examples=[1000],
        default=None,
        description="number of images for the global objective, of all clients' images; null: all",
    )


class ByAscent(Analysis):
    """An analysis of sharpness, max over ‖δ‖ ≤ ρ of F(w + δ) − F(w), estimated by projected gradient ascent."""

    steps: Count = Field(default=1, description="ascent steps; the best point of all steps counts")
    step: float = Field(default=1.0, gt=0, description="length of an ascent step, in units of the ball's radius")

    @property
    def ascent(self) -> Ascent:
        """The estimator of the maximum."""
        return Ascent(self.steps, self.step)


class OfOneSeed(Analysis):
    """An analysis of one run of a cell."""

    seed: Seed | None = Field(
        examples=[0], default=None, description="the seed of the analysed run; null: the cell's first seed"
    )

    def selected_seeds(self, seeds: Sequence[int]) -> Sequence[int]:
        """The requested seed; without one, the first of the cell."""
        if self.seed is not None and self.seed not in seeds:
            raise UserError(f"{self.name}.seed = {self.seed} (allowed: {', '.join(map(str, seeds))})")
        return [seeds[0] if self.seed is None else self.seed]


class ByForwardPasses(Analysis):
    """An analysis that only needs the loss or the accuracy of many models."""

    precision: ForwardPrecision = Field(
        default="fp32",
        description="of forward passes: fp32; bf16, with the largest difference from fp32 at five points (models)",
    )


class OfLandscape(ByForwardPasses):
    """An analysis of models on a line or a plane in parameter space."""

    evaluator: Literal["fedflat", "loss_landscapes"] = Field(
        default="fedflat", description="fedflat; loss_landscapes: the package, without saving finished points"
    )

    @property
    def points_by(self) -> str:
        """The end of definitions: the package, if it evaluates the points."""
        return f"; points by {LOSS_LANDSCAPES}" if self.evaluator == "loss_landscapes" else ""


class OfEigenvalues(Analysis):
    """An analysis of Hessian eigenvalues, and how they are estimated."""

    estimator: Estimator = Field(
        default="lanczos",
        description="lanczos; power: power iteration with deflation, as in published work; pyhessian: the package",
    )
    tolerance: float = Field(default=1e-3, gt=0, description="largest residual |Hv - λv| in units of |λ|")
    max_products: Count = Field(default=1000, description="largest number of Hessian products for Lanczos")
    steps: Count = Field(default=20, description="power: largest number of iterations per eigenvalue")
    iterations: Count = Field(default=100, description="pyhessian: largest number of iterations per eigenvalue")
    change: float = Field(
        default=1e-3, gt=0, description="pyhessian: it stops if an iteration changes the eigenvalue by less, relatively"
    )
    dtype: NumberFormat = Field(default="float32", description="number format of the products: float32 or float64")

    @property
    def how(self) -> str:
        """The estimator in words, for definitions."""
        names: dict[Estimator, str] = {
            "lanczos": "Lanczos",
            "power": f"power iteration of at most {self.steps} steps",
            "pyhessian": f"{PYHESSIAN}, power iteration of at most {self.iterations} steps, change {self.change:g}",
        }
        return f"{names[self.estimator]}, {self.dtype}"

    def top_eigenvalues(self, run: AnalysedRun, w: Tensor, data: Batched, k: int, what: str) -> TopEigenvalues:
        """The k largest eigenvalues at w; reports how many of them have residuals above the tolerance."""
        objective, w, data = in_format(run.setup.objective, w, data, self.dtype)
        found = top_eigenvalues(
            objective, w, data, k,
            tolerance=self.tolerance, estimator=self.estimator, steps=self.steps, iterations=self.iterations,
            change=self.change, max_products=self.max_products,
            track=lambda numbers: run.progress(iter(numbers), f"{what}: step"),
        )  # fmt: skip
        if not found.converged:
            failed = k - sum(found.within_tolerance)
            run.log(
                f"seed {run.config.seed}: {what}: {failed} of {k} eigenvalues have residuals above "
                f"{self.tolerance:g}·|λ| after {found.products} products"
            )
        return found


def needs_stored_states(name: str, evaluation: Evaluation) -> None:
    """A `UserError` if runs with these evaluation settings save no states."""
    if evaluation.snapshot_every is None:
        raise UserError(
            f"{name} needs stored states of the runs, but evaluation.snapshot_every is null: "
            "the experiment stores none; set it to a number of rounds"
        )
