"""Accuracy of the final global model on corrupted test images, by corruption and severity."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import ByForwardPasses
from fedflat.analysis.measures.corruptions import CORRUPTIONS, SEVERITIES, Corrupted
from fedflat.analysis.measures.forward_passes import ForwardPasses
from fedflat.bench.data.root import data_root
from fedflat.bench.data.sources.base import Source
from fedflat.bench.data.sources.cifar_c import CORRUPTIONS as CIFAR_C
from fedflat.bench.data.sources.cifar_c import Cifar10C, Cifar100C, CifarC
from fedflat.bench.engine.objective import Batched
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.metrics.quantity import Quantity

_PUBLISHED: dict[str, type[CifarC]] = {"cifar10_c": Cifar10C, "cifar100_c": Cifar100C}


class Corruptions(ByForwardPasses):
    """Robustness to corrupted images (Caldarola et al., 2022: Figures 6 and 8)."""

    name: ClassVar[str] = "corruptions"
    columns: ClassVar[tuple[str, ...]] = ("metric", "suite", "corruption", "severity", "value")
    quantities: ClassVar[Mapping[str, Quantity]] = {
        "corrupted_accuracy": Quantity("accuracy on corrupted test images", "higher", "%"),
    }
    of_label_maps: ClassVar[bool | None] = False

    suite: Literal["auto", "cifar10_c", "cifar100_c", "built_in"] = Field(
        default="auto",
        description="cifar10_c, cifar100_c: the published images, whose files must exist; built_in: six corruptions "
        "that are computed here and not comparable with those; auto: the published ones for CIFAR, else built_in",
    )
    corruptions: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="names of corruptions of the suite; null: all"
    )
    severities: tuple[Annotated[int, Field(ge=1, le=SEVERITIES)], ...] = Field(
        default=(1, 2, 3, 4, 5), min_length=1, description="severities from 1 to 5"
    )

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row for the clean images (severity 0), one per corruption and severity, one for the mean over these."""
        setup, suite = run.setup, self._suite(run)
        clean = run.batches(setup.test)
        sets = [(name, severity) for name in self._names(suite) for severity in self.severities]
        passes = ForwardPasses(setup.objective, self.precision, 1 + len(sets))

        def accuracy(data: Batched) -> float:
            return passes.evaluate(run.w, data)[1]

        def corrupted(name: str, severity: int) -> Batched:
            if suite == "built_in":
                return Corrupted(setup.test, setup.dataset.scale, clean.size, name, severity)
            source = _PUBLISHED[suite].parse({"corruption": name, "severity": severity})
            images = source.samples("test", data_root()).samples
            return run.batches(images.on(run.device, setup.test.shift, setup.test.factor))

        rows: list[tuple[str, str | None, int | None, float]]
        rows = [("accuracy", "clean", 0, accuracy(clean))]
        for name, severity in run.progress(sets, "corrupted test set"):
            rows.append(("accuracy", name, severity, accuracy(corrupted(name, severity))))
        mean = math.fsum(value for *_, value in rows[1:]) / len(sets)
        rows.append(("corrupted_accuracy", None, None, mean))
        table = pd.DataFrame(rows, columns=["metric", "corruption", "severity", "value"])
        origin = "computed by FedFlat, not those of CIFAR-C" if suite == "built_in" else "as published"
        definition = f"test accuracy in percent; {suite}: corruptions {origin}; mean over {len(sets)} corrupted sets"
        return table.astype({"severity": "Int64"}).assign(suite=suite, definition=definition, **passes.differences)

    def other_data(self, source: Source) -> Sequence[str]:
        """The suite, if it is a published one."""
        suite = self._suite_for(source)
        return [suite] if suite in _PUBLISHED else []

    def _suite_for(self, source: Source) -> str:
        published = f"{source.name}_c"
        return (published if published in _PUBLISHED else "built_in") if self.suite == "auto" else self.suite

    def _suite(self, run: AnalysedRun) -> str:
        """The suite of this run; a `UserError` if it does not fit the run's data set."""
        source, dataset = run.config.dataset, run.setup.dataset
        if isinstance(source, CifarC):
            raise UserError(f"corruptions: the test images of {source.label} are already corrupted")
        suite = self._suite_for(source)
        if len(dataset.image_shape) != 3 or dataset.test.images.dtype != np.uint8:
            what = f"samples of {dataset.name} are {dataset.test.images.dtype} of the shape {dataset.image_shape}"
            raise UserError(f"corruptions are defined for images of bytes, (channels, height, width), but {what}")
        facts = _PUBLISHED[suite].facts if suite in _PUBLISHED else None
        if facts is not None and (facts.shape, facts.classes) != (dataset.image_shape, dataset.classes):
            raise UserError(
                f"corruptions.suite = {suite}, but the run's data set is {dataset.name} (allowed here: built_in)"
            )
        return suite

    def _names(self, suite: str) -> tuple[str, ...]:
        allowed = tuple(CORRUPTIONS) if suite == "built_in" else CIFAR_C
        for name in self.corruptions or ():
            if name not in allowed:
                raise unknown(f"corruption of {suite}", name, allowed)
        return self.corruptions or allowed
