"""Rounds, communication and computation until the test accuracy, or the mean IoU, reaches a target."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

import pandas as pd
from pydantic import Field, model_validator

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.measures.convergence import FinalValue, first_reaching
from fedflat.analysis.measures.cost import SPENT, images_of_steps, spending
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.columns import score_words
from fedflat.bench.metrics.quantity import Quantity

TargetAccuracy = Annotated[float, Field(gt=0, le=100)]


class Convergence(Analysis):
    """Costs of a run until its test accuracy, or its mean IoU for segmentation, reaches a target (FedLESAM's Tables 5
    and 9, FedGF's Table 4, FedTOGA's Tables 3 and 8)."""

    name: ClassVar[str] = "convergence"
    columns: ClassVar[tuple[str, ...]] = ("metric", "target", "target_of", "smoothed", "value", "reached")
    quantities: ClassVar[Mapping[str, Quantity]] = {
        "rounds_to_target": Quantity("rounds", "lower"),
        "transmissions_to_target": Quantity("models sent and received per client", "lower"),
        "gigabytes_to_target": Quantity("traffic of all clients", "lower", "GB"),
        "received_gigabytes_to_target": Quantity("traffic to all clients", "lower", "GB"),
        "image_gradients_to_target": Quantity("gradients of single images", "lower"),
        "train_seconds_to_target": Quantity("training time", "lower", "s"),
    }
    of_diverged: ClassVar[bool] = True
    of_stopped: ClassVar[bool] = True
    of_final_model: ClassVar[bool] = False

    targets: tuple[TargetAccuracy, ...] = Field(default=(80.0,), description="test accuracies or mean IoUs in percent")
    reference: str | None = Field(
        default=None, description="a method whose final accuracy, seed by seed, is a further target; null: none"
    )
    final: FinalValue = Field(
        default=FinalValue(),
        description="the rule of the reference's final accuracy: {rule: last}, {rule: best}, or {rule: mean_last_n, "
        "n: 10}",
    )
    window: Count = Field(
        default=1,
        description="second criterion: the mean of this many last evaluations reaches the target; 1: no second one",
    )

    @model_validator(mode="after")
    def _any_target(self) -> "Convergence":
        if not self.targets and self.reference is None:
            raise UserError("the analysis convergence needs targets, a reference, or both")
        return self

    def check(self, evaluation: Evaluation) -> None:
        """A `UserError` if the runs have no test accuracies."""
        evaluation.require_test(self.name)

    def compared_labels(self) -> Sequence[str]:
        """The reference method."""
        return () if self.reference is None else (self.reference,)

    def check_target(self, target: float | str, *, smoothed: bool) -> None:
        """A `UserError` unless its files have this target (an accuracy, or the label of the reference), and smoothed
        accuracies if `smoothed`."""
        if target not in (*self.targets, *self.compared_labels()):
            known = ", ".join([*(f"{accuracy:g}" for accuracy in self.targets), *self.compared_labels()])
            raise UserError(
                f"target {target} is not a target of the analysis convergence (allowed: {known}); "
                "analyses.yaml lists the targets"
            )
        if smoothed and self.window == 1:
            raise UserError("smoothed: true needs a window above 1 in the analysis convergence (analyses.yaml)")

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per target, smoothing and quantity: what was spent until the target was `reached`, else in total.

        A run that stopped before it reached a target has no rows for it, because more rounds might have reached it.
        """
        directory = run.directory
        metrics = directory.metrics()
        images = images_of_steps(directory, metrics["round"])
        spent = spending(metrics, directory.times(), run.w.numel(), images).set_index("round")
        evaluations = metrics.set_index("round")[run.config.score].dropna()
        end = f"; evaluated {run.config.evaluation.schedule}{', diverged' if directory.diverged else ''}"
        score = score_words(run.config.score)
        rows = []
        for target, of in self._targets(run):
            for smoothed, window in enumerate((1, self.window) if self.window > 1 else (1,)):
                finished = first_reaching(evaluations, target, window)
                if finished is None and directory.stopped:
                    continue
                until = spent.loc[spent.index[-1] if finished is None else finished]
                what = score if window == 1 else f"mean of the last {window} {_plural(score)}"
                rows += [
                    (f"{name}_to_target", target, of, smoothed, until[name], int(finished is not None),
                     f"{meaning}, until the first round with {what} >= {target:g} %{end}")
                    for name, meaning in SPENT.items()
                ]  # fmt: skip
        return pd.DataFrame(rows, columns=[*self.columns, "definition"])

    def _targets(self, run: AnalysedRun) -> Iterator[tuple[float, str | None]]:
        """Each target, and the label of the method whose final accuracy it is."""
        yield from ((target, None) for target in self.targets)
        if self.reference is None:
            return
        reference = self.compared_runs(run)[0].directory
        if reference.diverged or reference.stopped:
            outcome = reference.provenance["outcome"]
            run.log(f"seed {run.config.seed}: '{reference.path}' {outcome} and yields no target")
            return
        yield self.final.of(reference.metrics()[run.config.score].dropna(), "higher"), self.reference


def _plural(score: str) -> str:
    return score.replace("accuracy", "accuracies").replace("mIoU", "mIoUs")
