"""The pages of a reproduction: kept runs at a paper's own scale, next to the printed numbers; docs/reproduction.md in
short, studies/pages/reproduction.md in full.

`python -m studies.reproduction.page` rewrites the generated parts of the pages, and draws their
figures again. `studies.reproduction.kept_results` keeps the results.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from fedflat.analysis.claims.decide import Decision
from fedflat.analysis.claims.evidence import Printed, RunEvidence
from fedflat.analysis.claims.page import LEGEND, judged, stated
from fedflat.analysis.comparison.report_pages import ReportFigure
from fedflat.analysis.comparison.report_table import ReportTable
from fedflat.analysis.figures.base import draw_curve, draw_legend, figure_style, new_figure, whole_numbers
from fedflat.analysis.figures.draw import caption, draw
from fedflat.analysis.figures.palette import line_look
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.measures.convergence import moving_means
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.analysis.tables.formats import FORMATS
from fedflat.bench.training.run_directory import LOG, RunDirectory
from studies.part import GeneratedPages, PagePart
from studies.places import DETAILS, DOCS
from studies.reproduction.kept_results import kept, runs_of
from studies.reproduction.printed_runs import (
    ACCURACY,
    DEVIATION,
    ERROR,
    PrintedRun,
    by_classes,
    by_rule,
    differences,
    label,
    printed_runs,
)

EXPERIMENT = "fedgf_cifar10"
"""The experiment that the pages are about."""

IMAGES = {EXPERIMENT: "CIFAR-10", "fedgf_cifar10_jpeg": "CIFAR-10 as JPEG"}
"""The experiments with the same settings on versions of the images; JPEG images also have another split."""

PAGES = GeneratedPages([folder / "reproduction.md" for folder in (DOCS, DETAILS)], DOCS / "images" / "reproduction")

WINDOW, EVERY, WIDTH = 10, 100, 6.0
"""Evaluations per point of a curve, rounds between points, and the width of a figure in inches."""

_RESUMED = re.compile(r"resumed after round (\d+)")


def runs(requested: RequestedExperiment) -> PagePart:
    """Where the runs were computed, and how long they took."""
    found = [(one, cell, run) for one in map(kept, IMAGES) for cell, run in runs_of(one)]
    rows = [(label(one, cell, run), IMAGES[one.target], *_effort(run)) for one, cell, run in found]
    header = ("method", "images", "rounds", "hours", "resumed after round", "end (UTC)", "machine", "precision", "code")
    frame = pd.DataFrame(rows, columns=list(header))
    hours = sum(run.provenance["seconds"] for _, _, run in found) / 3600
    about = (
        "Hours are those of training and evaluation. Machine: a processor after a round is the one on which the run "
        "was resumed. Interrupting and resuming a run changes no bit of its result, on one processor, with the same "
        "number of threads and back end of the engine; others can round differently."
    )
    table = ReportTable("runs", Caption("Hours and machines", about), header, tuple(rows), frame)
    return PagePart([f"{len(found)} run{'s' * (len(found) > 1)}, {hours:.1f} hours."], tables=[table])


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
    machines = about.get("computed_on") or [{**about, "after_round": 0}]
    processors = ", ".join(
        one["processor"] + (f" after {one['after_round']:,}" if one["after_round"] else "") for one in machines
    )
    threads = dict.fromkeys(about[choice]["threads"] for choice in ("engine_at_start", "engine"))
    devices = ", ".join(dict.fromkeys(one["device"] for one in machines))
    return f"{processors}; {', then '.join(map(str, threads))} thread{'s' * ([*threads] != [1])}; {devices}"


def accuracy(requested: RequestedExperiment) -> PagePart:
    """The final accuracies, how much they depend on the rule by which a run is reported, and on the last rounds."""
    found = printed_runs(requested)
    about = (
        "Test accuracy (%) by four rules, in brackets the difference from the printed number in points. Best of all: "
        "of all evaluations, which are those of every tenth round and of each of the last 100."
    )
    rules = by_rule("protocol", Caption("Rules of reporting", f"{about} {ERROR}"), found)
    tables = [rules, differences(found), by_classes(found)]
    return PagePart([one.gap for one in found], tables=tables, blocks=[_table(requested, DEVIATION)])


def printed(requested: RequestedExperiment) -> PagePart:
    """The final accuracies next to the printed ones, as the paper shows them."""
    return PagePart((), blocks=[_table(requested, ACCURACY)])


def images(requested: RequestedExperiment) -> PagePart:
    """The methods that were trained on several versions of the images."""
    versions = {name: printed_runs(kept(name)) for name in IMAGES}
    methods = Counter(method for runs in versions.values() for method in {one.method for one in runs})
    found = [
        one._replace(label=f"{one.label}, {IMAGES[name]}")
        for name, runs in versions.items()
        for one in runs
        if methods[one.method] > 1
    ]
    about = (
        "Test accuracy (%) of the same method on versions of the images, in brackets the difference from the printed "
        "number. No paper prints numbers for JPEG images, so they are compared with those for CIFAR-10."
    )
    return PagePart(
        (),
        [_curves(found)],
        [by_rule("images", Caption("Accuracy by version of the images", f"{about} {ERROR}"), found)],
    )


def _curves(found: Sequence[PrintedRun]) -> ReportFigure:
    """Accuracy over rounds, one curve per run."""
    looks = {one.label: line_look(place) for place, one in enumerate(found)}
    shown = []
    with figure_style():
        figure, body = new_figure(WIDTH, 2.6)
        axes = body.subplots()
        for one in found:
            means = moving_means(one.regular_accuracies, WINDOW)
            curve = means[means.index % EVERY == 0].rename("test_accuracy").reset_index()
            draw_curve(axes, curve["round"], curve["test_accuracy"], pd.Series(0.0, curve.index), looks[one.label])
            shown.append(curve.assign(run=one.label))
        whole_numbers(axes.xaxis)
        axes.set_xlabel("Communication round")
        axes.set_ylabel("Test accuracy (%)")
        draw_legend(body, looks, WIDTH)
    about = (
        f"Accuracy of the global model on the test images. Each point is the mean of {WINDOW} neighbouring evaluations "
        "of one run, of every tenth round."
    )
    return ReportFigure("images", Caption("Convergence by version of the images", about), pd.concat(shown), figure)


def convergence(requested: RequestedExperiment) -> PagePart:
    """Accuracy over rounds."""
    return PagePart((), [_figure(requested, "convergence", "4a")])


def communication(requested: RequestedExperiment) -> PagePart:
    """Models sent and received until FedAvg's accuracy."""
    return PagePart((), blocks=[_table(requested, "4")])


def coefficient(requested: RequestedExperiment) -> PagePart:
    """FedGF's coefficient over rounds."""
    return PagePart((), [_figure(requested, "coefficient", "10")])


def flatness(requested: RequestedExperiment) -> PagePart:
    """Measures of the final models, and the loss around them."""
    return PagePart((), [_figure(requested, "flatness", "9")], blocks=[_table(requested, "8")])


def claims(requested: RequestedExperiment) -> PagePart:
    """The paper's claims for which the runs have a number."""
    evidence = RunEvidence(requested)
    rows = [row for row in judged(Printed(requested.paper), evidence) if _has_number(row.measured)]
    header = ("claim", "in words", "stated", "print", "measured", "95 % interval", "decision")
    texts = [(row.claim.id, row.claim.about, stated(row.claim), *row.cells[3:]) for row in rows]
    title = f"Claims of {requested.paper}, compared with these runs ({evidence.kind})"
    frame = pd.DataFrame(texts, columns=list(header))
    return PagePart((), tables=[ReportTable("claims", Caption(title, LEGEND), header, tuple(texts), frame)])


def _has_number(finding: Decision | None) -> bool:
    return finding is not None and finding.value is not None


PARTS: Mapping[str, Callable[[RequestedExperiment], PagePart]] = {
    made.__name__: made
    for made in (runs, accuracy, printed, convergence, communication, coefficient, flatness, claims, images)
}


def parts() -> dict[str, PagePart]:
    """The generated parts of the pages, by name."""
    requested = kept(EXPERIMENT)
    return {name: part(requested) for name, part in PARTS.items()}


def _table(requested: RequestedExperiment, name: str) -> str:
    return f"### Table {name}\n\n{FORMATS['md'](Tables(requested).filled(name))}"


def _figure(requested: RequestedExperiment, name: str, layout_name: str) -> ReportFigure:
    layout, tidy = Figures(requested).rendered_layout(layout_name), requested.tidy
    frame: Any = tidy.gather(layout.file, layout.cells(requested.experiment))
    return ReportFigure(name, caption(layout, tidy), frame, draw(layout, tidy))


if __name__ == "__main__":
    PAGES.rewrite(parts())
