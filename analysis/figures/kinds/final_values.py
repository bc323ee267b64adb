"""Figures of one value per run: the reported value of a metric, or the result of an analysis."""

from pathlib import Path
from typing import ClassVar

import pandas as pd
from pydantic import Field, field_validator

from fedflat.analysis.figures.base import FigureLayout
from fedflat.analysis.layouts.captions import reported_as
from fedflat.analysis.layouts.protocol import final_at_scale
from fedflat.analysis.layouts.quantities import Shown, quantity
from fedflat.analysis.layouts.titles import method_titles
from fedflat.analysis.measures.convergence import FinalValue, reported
from fedflat.analysis.tables.layout import Column
from fedflat.analysis.tables.values import values_of
from fedflat.bench.experiments.address import RUN_IDS
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.input.errors import UserError


class FinalValuesLayout(FigureLayout):
    """A figure of one value per run."""

    needs: ClassVar[str] = "metrics"
    metric: str = Field(default="test_accuracy", description="any metric of a table, except those of targets")
    final: FinalValue | None = Field(
        default=None, description="the reported value of a run; null: the one that each method reports"
    )

    @field_validator("metric")
    @classmethod
    def _one_per_run(cls, metric: str) -> str:
        if quantity(metric).file == "convergence":
            raise UserError(f"this kind of figure cannot show {metric}, because it depends on a target")
        return metric

    @property
    def quantity(self) -> Shown:
        """The quantity that is shown."""
        return quantity(self.metric)

    @property
    def needed_file(self) -> str:
        """The kind of file that has the quantity."""
        return self.quantity.file

    def inputs(self, experiment: Experiment, paths: ResultPaths) -> list[Path]:
        """The tidy files that the figure reads. Metrics are always among them: they say which runs diverged."""
        files = dict.fromkeys(["metrics", self.file])
        return [paths.tidy(experiment.name, cell.path, file) for file in files for cell in self.cells(experiment)]

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of its quantity."""
        return frame[frame["metric"] == self.metric] if "metric" in frame else frame

    def reported_value(self, experiment: Experiment) -> str:
        """Which value of a run is shown: a sentence for the caption."""
        if self.needed_file != "metrics":
            return ""
        requested = "" if experiment.report is None else ", as requested instead of the figure's own protocol"
        if self.final is not None:
            return f"Values{requested}: {self.final.description}."
        names, finals = method_titles(experiment, self.methods), self._reported(experiment)
        return f"Values{requested}: {reported_as({names[method]: finals[method] for method in self.methods})}."

    def values(self, frame: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
        """One row per run: the columns that name it, and its `value`, NaN for a run that diverged."""
        column = Column(
            header=self.metric, metric=self.metric, final=self.final if self.needed_file == "metrics" else None
        )
        finals = self._reported(experiment)
        values = values_of(column, finals, frame)
        rows = [(*cell, value.seed, value.number) for cell, of_seeds in values.items() for value in of_seeds]
        return pd.DataFrame(rows, columns=[*RUN_IDS, "value"])

    def _reported(self, experiment: Experiment) -> dict[str, FinalValue]:
        """The rule of each method's results, over as many evaluations as the scale allows."""
        entries = experiment.methods.items()
        return {label: final_at_scale(reported(entry.release(label)), experiment) for label, entry in entries}
