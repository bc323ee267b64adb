"""Kept runs next to the accuracies that their paper prints: gaps, their errors, and what else they depend on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedflat.analysis.comparison.report_table import ReportTable, number
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.titles import method_titles
from fedflat.analysis.measures.convergence import FinalValue
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.engine.participation import active_clients
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.training.run_directory import RunDirectory
from studies.reproduction.kept_results import runs_of

ACCURACY, DEVIATION = "1", "7"
"""The tables of final accuracies, and of the deviations of the last 100 accuracies."""

LAST = 100
"""The rounds, each of which is evaluated, whose mean FedGF's code reports."""

MEAN = f"mean of the last {LAST}"
"""The rule of FedGF's code, whose standard error is shown."""

BLOCK = 100
"""The regular evaluations whose mean shows whether the accuracy still rises."""

BATCH_ROUNDS = 10
"""The rounds of a batch, whose means are treated as independent; longer batches would leave too few of them."""

ERROR = (
    f"±: standard error of the mean, estimated from the means of batches of {BATCH_ROUNDS} consecutive rounds; it is "
    "that of one run, other seeds can differ by more."
)

RULES: Mapping[str, Callable[[pd.Series], float]] = {
    "last round": lambda values: FinalValue.named("last").of(values, "higher"),
    MEAN: lambda values: FinalValue.named(f"mean_last_{LAST}").of(values, "higher"),
    f"best of the last {LAST}": lambda values: FinalValue.named("best").of(values.iloc[-LAST:], "higher"),
    "best of all": lambda values: FinalValue.named("best").of(values, "higher"),
}
"""Rules by which the accuracy of a run can be reported."""


class PrintedRun(NamedTuple):
    """A run of a method for which the paper prints an accuracy (%), and its deviation over the last rounds (points)."""

    method: str
    label: str
    printed: float
    printed_deviation: float
    run: RunDirectory

    @property
    def accuracies(self) -> pd.Series:
        """The accuracy (%) of each evaluation, by round."""
        return self.run.metrics().set_index("round")["test_accuracy"].dropna()

    @property
    def regular_accuracies(self) -> pd.Series:
        """Those at regular intervals, without the further ones of the last rounds."""
        return self.accuracies[self.accuracies.index % self.run.config.evaluation.every == 0]

    @property
    def gap(self) -> str:
        """How far the run is from the printed number, and whether its accuracy still rises, in words."""
        accuracies, every = self.accuracies, self.run.config.evaluation.every
        gap = RULES[MEAN](accuracies) - self.printed
        error = np.hypot(standard_error(accuracies), self.printed_deviation / LAST**0.5)
        regular = self.regular_accuracies
        before, last = regular.iloc[-2 * BLOCK : -BLOCK], regular.iloc[-BLOCK:]
        return (
            f"{self.label}: the {MEAN} is {abs(gap):.2f} points {'below' if gap < 0 else 'above'} the printed number, "
            f"{abs(gap) / error:.1f} times the error of the difference. Mean of the evaluations of every {every}th "
            f"round: {before.mean():.1f} % in rounds {_span(before)}, {last.mean():.1f} % in rounds {_span(last)}."
        )

    def classes(self) -> pd.Series:
        """The number of classes of which the active clients of a round have images, by round."""
        config, rounds = self.run.config, self.run.metrics()["round"]
        table = self.run.partition()
        labels = {client: set(own["label"]) for client, own in table.groupby("client")}
        active = (active_clients(config.participation, len(labels), config.seed, t - 1) for t in rounds)
        return pd.Series([len(set.union(*(labels[i] for i in clients))) for clients in active], rounds)


def _span(values: pd.Series) -> str:
    """The first and last round of evaluations."""
    return f"{values.index[0]:,} to {values.index[-1]:,}"


def label(requested: RequestedExperiment, cell: CellAddress, run: RunDirectory) -> str:
    """The name of a run's method; of one of several seeds, with its seed."""
    title = method_titles(requested.experiment)[cell.method]
    return title if len(requested.experiment.grid.seeds) == 1 else f"{title}, seed {run.config.seed}"


def printed_runs(requested: RequestedExperiment) -> list[PrintedRun]:
    """The finished runs of methods for which the paper prints an accuracy, in the order of the experiment."""
    accuracies, deviations = (_printed(requested, table) for table in (ACCURACY, DEVIATION))
    return [
        PrintedRun(cell.method, label(requested, cell, run), accuracies[cell.method], deviations[cell.method], run)
        for cell, run in runs_of(requested)
        if cell.method in accuracies
    ]


def _printed(requested: RequestedExperiment, name: str) -> dict[str, float]:
    """The printed numbers of a table with one column, by method."""
    table = Tables(requested).filled(name)
    pairs = zip(table.layout.methods, table.published[0], strict=True)
    numbers = {method: one.number for method, (one,) in pairs if one.number is not None}
    return {method: one.value for method, one in numbers.items() if one.value is not None}


def standard_error(values: pd.Series) -> float:
    """The standard error of the mean of the last 100 values, from the means of batches of rounds."""
    last = values.iloc[-LAST:]
    return float(last.groupby(np.arange(len(last)) // BATCH_ROUNDS).mean().std() / (len(last) / BATCH_ROUNDS) ** 0.5)


def by_rule(name: str, caption: Caption, found: Sequence[PrintedRun]) -> ReportTable:
    """The accuracies of runs by rule."""
    rows, values = [], []
    for one in found:
        accuracies = one.accuracies
        measured = {rule: of(accuracies) for rule, of in RULES.items()}
        errors = {MEAN: f" ± {number(standard_error(accuracies), '.2f')}"}
        texts = (
            f"{value:.2f}{errors.get(rule, '')} ({number(value - one.printed, '+.2f')})"
            for rule, value in measured.items()
        )
        rows.append((one.label, f"{one.printed:.2f}", *texts))
        values.append((one.label, one.printed, *measured.values()))
    header = ("method", "printed", *RULES)
    return ReportTable(name, caption, header, tuple(rows), pd.DataFrame(values, columns=list(header)))


def differences(found: Sequence[PrintedRun]) -> ReportTable:
    """The differences between methods that follow each other by printed accuracy, in the same rounds."""
    header = ("methods", "printed", "measured")
    frame = pd.DataFrame(_differences(found), columns=[*header, "error"])
    rows = tuple(
        (methods, number(printed, ".2f"), f"{number(measured, '.2f')} ± {error:.2f}")
        for methods, printed, measured, error in frame.itertuples(index=False)
    )
    about = (
        f"Difference (points) of the {MEAN}, of methods that follow each other by printed accuracy. ±: standard error "
        "of the mean difference of the same rounds, in which all methods have the same active clients."
    )
    return ReportTable("differences", Caption("Differences between methods", about), header, rows, frame)


def _differences(found: Sequence[PrintedRun]) -> Iterator[tuple[str, float, float, float]]:
    in_order = sorted(found, key=lambda one: (one.run.config.seed, one.printed))
    for _, of_seed in groupby(in_order, lambda one: one.run.config.seed):  # other seeds have other active clients
        for less, more in pairwise(of_seed):
            both = (more.accuracies - less.accuracies).iloc[-LAST:]
            yield f"{more.label} − {less.label}", more.printed - less.printed, both.mean(), standard_error(both)


def by_classes(found: Sequence[PrintedRun]) -> ReportTable:
    """How the accuracy after a round depends on the classes of its active clients, by a least-squares line."""
    rows, values = [], []
    for one in found:
        classes, accuracies = one.classes(), one.accuracies.iloc[-LAST:]
        x, usual = classes.loc[accuracies.index], classes.mean()
        slope = x.cov(accuracies) / x.var()
        mean, expected = accuracies.mean(), accuracies.mean() + slope * (usual - x.mean())
        numbers = (x.corr(accuracies), slope, x.mean(), mean, usual, expected)
        rows.append((one.label, *(number(value, ".2f") for value in numbers)))
        values.append((one.label, *numbers))
    header = (
        "method",
        "correlation",
        "points per class",
        f"classes, last {LAST}",
        MEAN,
        "classes, all rounds",
        "accuracy expected with these",
    )
    about = (
        f"Test accuracy after each of the last {LAST} rounds, and the number of classes of which the active clients of "
        "this round have images: the correlation, and the slope of the least-squares line. Last column: the value of "
        "the line at the mean number of classes of all rounds."
    )
    caption = Caption("Classes that take part in a round", about)
    return ReportTable("classes", caption, header, tuple(rows), pd.DataFrame(values, columns=list(header)))
