"""The page of a reproduction, docs/reproduction.md: kept runs at a paper's own scale, next to the printed numbers.

`python -m analysis.provenance.reproduction_page` rewrites the generated parts of the page, and draws their figures
again. `analysis.provenance.kept_results` keeps the results.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd

from analysis.claims.decide import Finding
from analysis.claims.evidence import Printed, Runs
from analysis.claims.page import LEGEND, judged, stated
from analysis.comparison.pages.figure import ReportFigure
from analysis.comparison.pages.part import Part, rewrite
from analysis.comparison.pages.table import ReportTable, number
from analysis.figures.base import STYLE, draw_curve, draw_legend, new_figure, whole_numbers
from analysis.figures.draw import caption, draw
from analysis.figures.palette import line_look
from analysis.layouts.captions import Caption
from analysis.layouts.titles import method_titles
from analysis.measures.convergence import FinalValue, moving_means
from analysis.provenance.export import REPOSITORY
from analysis.provenance.kept_results import kept, runs_of
from analysis.report.figures import Figures
from analysis.report.requested import RequestedExperiment
from analysis.report.tables import Tables
from analysis.tables.formats import FORMATS
from bench.experiments.address import CellAddress
from bench.training.run_directory import LOG, RunDirectory

EXPERIMENT = "fedgf_cifar10"
"""The experiment that the page is about."""


class Version(NamedTuple):
    """The images of an experiment, and its table of final accuracies."""

    images: str
    accuracy: str


VERSIONS = {
    EXPERIMENT: Version("CIFAR-10", "1"),
    "fedgf_cifar10_jpeg": Version("CIFAR-10 as JPEG", "1"),
    "fedsam_caldarola_cifar10": Version("CIFAR-10, normalised as by Caldarola et al.", "2"),
}
"""The experiments with the same settings on versions of the images; JPEG images also have another split."""

PAGE = REPOSITORY / "docs" / "reproduction.md"
PICTURES = "images/reproduction"
"""The folder of the figures, relative to the page."""

DEVIATION = "7"
"""The table of deviations of the last 100 accuracies."""

MEAN = "mean of the last 100"
"""The rule of FedGF's code, whose standard error is shown."""

BATCH_ROUNDS = 10
"""The rounds of a batch, whose means are treated as independent; longer batches would leave too few of them."""

WINDOW, EVERY, WIDTH = 10, 100, 6.0
"""Evaluations per point of a curve, rounds between points, and the width of a figure in inches."""

ERROR = (
    "±: standard error of the mean, estimated from ten means of ten consecutive rounds each; it is that of one run, "
    "other seeds can differ by more. The printed numbers have an error of their own, which the paper does not state."
)

RULES: Mapping[str, Callable[[pd.Series], float]] = {
    "last round": lambda values: FinalValue.named("last").of(values, "higher"),
    MEAN: lambda values: FinalValue.named("mean_last_100").of(values, "higher"),
    "best of the last 100": lambda values: FinalValue.named("best").of(values.iloc[-100:], "higher"),
    "best of all": lambda values: FinalValue.named("best").of(values, "higher"),
}
"""Rules by which the accuracy of a run can be reported."""

_RESUMED = re.compile(r"resumed after round (\d+)")


def runs(requested: RequestedExperiment) -> Part:
    """Where the runs were computed, and how long they took."""
    found = [(one, cell, run) for one in map(kept, VERSIONS) for cell, run in runs_of(one)]
    rows = [(_label(one, cell, run), VERSIONS[one.target].images, *_effort(run)) for one, cell, run in found]
    header = ("method", "images", "rounds", "hours", "resumed after round", "end (UTC)", "machine", "precision", "code")
    frame = pd.DataFrame(rows, columns=list(header))
    hours = sum(run.provenance["seconds"] for _, _, run in found) / 3600
    about = (
        "Hours are those of training and evaluation. On one processor, interrupting and resuming a run changes no bit "
        "of its result; another processor rounds differently."
    )
    table = ReportTable("runs", Caption("Hours and machines", about), header, tuple(rows), frame)
    return Part([f"{len(found)} run{'s' * (len(found) > 1)}, {hours:.1f} hours."], tables=[table])


def _label(requested: RequestedExperiment, cell: CellAddress, run: RunDirectory) -> str:
    """The name of a run's method; of one of several seeds, with its seed."""
    title = method_titles(requested.experiment)[cell.method]
    return title if len(requested.experiment.grid.seeds) == 1 else f"{title}, seed {run.config.seed}"


def _effort(run: RunDirectory) -> tuple[str, ...]:
    about = run.provenance
    resumed = _RESUMED.findall((run.path / LOG).read_text(encoding="utf-8"))
    return (
        f"{int(run.metrics()['round'].max()):,}",
        f"{about['seconds'] / 3600:.2f}",
        ", ".join(f"{int(last):,}" for last in resumed) or "–",
        str(about["ended"])[:16].replace("T", " "),
        _machine(about),
        str(about["precision"]),
        str(about["code"]["commit"])[:7],
    )


def _machine(about: Mapping[str, Any]) -> str:
    """The processors of a run and its numbers of threads in their order, and its devices; `about`: its provenance."""
    machines = about.get("computed_on") or [about]
    processors = ", then ".join(one["processor"] for one in machines)
    threads = dict.fromkeys(about[choice]["threads"] for choice in ("engine_at_start", "engine"))
    devices = ", ".join(dict.fromkeys(one["device"] for one in machines))
    return f"{processors}; {', then '.join(map(str, threads))} thread{'s' * ([*threads] != [1])}; {devices}"


def accuracy(requested: RequestedExperiment) -> Part:
    """The table of final accuracies, and how much they depend on the rule by which a run is reported."""
    about = (
        "Test accuracy (%) by four rules, in brackets the difference from the printed number in points. Best of all: "
        "of all evaluations, which are those of every tenth round and of each of the last 100."
    )
    found = _printed_runs(requested)
    rules = _by_rule("protocol", Caption("Rules of reporting", f"{about} {ERROR}"), found)
    tables = [_table(requested, name) for name in (VERSIONS[EXPERIMENT].accuracy, DEVIATION)]
    return Part([_gap(one) for one in found], tables=[rules], blocks=tables)


def _gap(one: "_PrintedRun") -> str:
    """How far a run is from the printed number, and whether its accuracy still rises."""
    accuracies = one.accuracies
    gap, error = RULES[MEAN](accuracies) - one.printed, standard_error(accuracies)
    regular = accuracies[accuracies.index % 10 == 0]
    before, last = (regular.iloc[start:][:100] for start in (-200, -100))
    return (
        f"{one.label}: the {MEAN} is {abs(gap):.2f} points {'below' if gap < 0 else 'above'} the printed number, "
        f"{abs(gap) / error:.1f} times its standard error. Mean of the evaluations of every tenth round: "
        f"{before.mean():.1f} % in rounds {_span(before)}, {last.mean():.1f} % in rounds {_span(last)}."
    )


def _span(values: pd.Series) -> str:
    """The first and last round of evaluations."""
    return f"{values.index[0]:,} to {values.index[-1]:,}"


def images(requested: RequestedExperiment) -> Part:
    """The methods that were trained on several versions of the images."""
    versions = {name: _printed_runs(kept(name)) for name in VERSIONS}
    methods = Counter(method for runs in versions.values() for method in {one.method for one in runs})
    found = [
        one._replace(label=f"{one.label}, {VERSIONS[name].images}")
        for name, runs in versions.items()
        for one in runs
        if methods[one.method] > 1
    ]
    about = (
        "Test accuracy (%) of the same method on versions of the images, in brackets the difference from the printed "
        "number. No paper prints numbers for JPEG images, so they are compared with those for CIFAR-10."
    )
    return Part(
        (),
        [_curves(found)],
        [_by_rule("images", Caption("Accuracy by version of the images", f"{about} {ERROR}"), found)],
    )


def _curves(found: Sequence["_PrintedRun"]) -> ReportFigure:
    """Accuracy over rounds, one curve per run."""
    looks = {one.label: line_look(place) for place, one in enumerate(found)}
    shown = []
    with matplotlib.rc_context(STYLE):
        figure, body = new_figure(WIDTH, 2.6)
        axes = body.subplots()
        for one in found:
            means = moving_means(one.accuracies, WINDOW)
            curve = means[means.index % EVERY == 0].rename("test_accuracy").reset_index()
            draw_curve(axes, curve["round"], curve["test_accuracy"], pd.Series(0.0, curve.index), looks[one.label])
            shown.append(curve.assign(run=one.label))
        whole_numbers(axes.xaxis)
        axes.set_xlabel("Communication round")
        axes.set_ylabel("Test accuracy (%)")
        draw_legend(body, looks, WIDTH)
    about = (
        f"Accuracy of the global model on the test images. Each point is the mean of {WINDOW} neighbouring evaluations "
        "of one run, which are those of every tenth round and of each of the last 100."
    )
    return ReportFigure("images", Caption("Convergence by version of the images", about), pd.concat(shown), figure)


class _PrintedRun(NamedTuple):
    """A run of a method for which the paper prints an accuracy (%)."""

    method: str
    label: str
    printed: float
    run: RunDirectory

    @property
    def accuracies(self) -> pd.Series:
        """The accuracy (%) of each evaluation, by round."""
        return self.run.metrics().set_index("round")["test_accuracy"].dropna()


def _printed_runs(requested: RequestedExperiment) -> list[_PrintedRun]:
    table = Tables(requested).filled(VERSIONS[requested.target].accuracy)
    pairs = zip(table.layout.methods, table.published[0], strict=True)
    numbers = {method: one.number.value for method, (one,) in pairs if one.number is not None}
    return [
        _PrintedRun(cell.method, _label(requested, cell, run), printed, run)
        for cell, run in runs_of(requested)
        if (printed := numbers.get(cell.method)) is not None
    ]


def _by_rule(name: str, caption: Caption, found: Sequence[_PrintedRun]) -> ReportTable:
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


def standard_error(accuracies: pd.Series) -> float:
    """The standard error (points) of the mean of the last 100 accuracies, from the means of batches of rounds."""
    last = accuracies.iloc[-100:]
    return float(last.groupby(np.arange(len(last)) // BATCH_ROUNDS).mean().std() / (len(last) / BATCH_ROUNDS) ** 0.5)


def convergence(requested: RequestedExperiment) -> Part:
    """Accuracy over rounds."""
    return Part((), [_figure(requested, "convergence", "4a")])


def communication(requested: RequestedExperiment) -> Part:
    """Models sent and received until FedAvg's accuracy."""
    return Part((), blocks=[_table(requested, "4")])


def coefficient(requested: RequestedExperiment) -> Part:
    """FedGF's coefficient over rounds."""
    return Part((), [_figure(requested, "coefficient", "10")])


def flatness(requested: RequestedExperiment) -> Part:
    """Measures of the final models, and the loss around them."""
    return Part((), [_figure(requested, "flatness", "9")], blocks=[_table(requested, "8")])


def claims(requested: RequestedExperiment) -> Part:
    """The paper's claims for which the runs have a number."""
    evidence = Runs(requested)
    rows = [row for row in judged(Printed(requested.paper), evidence) if _has_number(row.measured)]
    header = ("claim", "in words", "stated", "print", "measured", "95 % interval", "decision")
    texts = [(row.claim.id, row.claim.about, stated(row.claim), *row.cells[3:]) for row in rows]
    agreeing = sum(row.measured is not None and row.measured.margin >= 0 for row in rows)
    sentence = f"{agreeing} of the {len(rows)} claims for which there is a measured number agree with it."
    title = f"Claims of {requested.paper}, compared with these runs ({evidence.kind})"
    frame = pd.DataFrame(texts, columns=list(header))
    return Part([sentence], tables=[ReportTable("claims", Caption(title, LEGEND), header, tuple(texts), frame)])


def _has_number(finding: Finding | None) -> bool:
    return finding is not None and finding.value is not None


PARTS: Mapping[str, Callable[[RequestedExperiment], Part]] = {
    made.__name__: made for made in (runs, accuracy, convergence, communication, coefficient, flatness, claims, images)
}


def parts() -> dict[str, Part]:
    """The generated parts of the page, by name."""
    requested = kept(EXPERIMENT)
    return {name: part(requested) for name, part in PARTS.items()}


def _table(requested: RequestedExperiment, name: str) -> str:
    return f"### Table {name}\n\n{FORMATS['md'](Tables(requested).filled(name))}"


def _figure(requested: RequestedExperiment, name: str, layout_name: str) -> ReportFigure:
    layout, tidy = Figures(requested).rendered_layout(layout_name), requested.tidy
    frame: Any = tidy.gather(layout.file, layout.cells(requested.experiment))
    return ReportFigure(name, caption(layout, tidy), frame, draw(layout, tidy))


if __name__ == "__main__":
    rewrite(PAGE, parts(), PICTURES)
