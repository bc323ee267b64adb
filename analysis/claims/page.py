"""Claims and what decides them, as a text table for a terminal and as a Markdown page."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

from fedflat.analysis.claims.decide import Decision
from fedflat.analysis.claims.evidence import Printed, RunEvidence
from fedflat.analysis.claims.schema import FORMS, Claim
from fedflat.analysis.claims.statements import Bounds, Change, Level, MethodComparison, Rank
from fedflat.bench.files.text_table import aligned, markdown

HEADER = ["claim", "place", "stated", "print", "measured", "95 % interval", "decision"]

WIDTH = 120
"""The longest line in a terminal."""

LEGEND = (
    "Print: the decision by the paper's printed numbers, with the difference or ratio that decides in brackets. "
    "Measured: the same of the runs. Undecided: numbers or seeds are missing, a run failed, or the noise is too "
    "large. inf, -inf: a run failed (it diverged or did not reach its target), which counts as worse than all others."
    " No value: numbers are missing. –: no numbers at all, or no interval."
)
"""The meaning of words and signs in the columns."""

PLURALS = {"holds": "hold", "fails": "fail", "undecided": "undecided", "–": "without numbers"}


@dataclass(frozen=True)
class Judged:
    """A claim, what the printed numbers say of it, and what the runs say; None where there are no numbers."""

    claim: Claim
    printed: Decision | None
    measured: Decision | None

    @property
    def cells(self) -> list[str]:
        """The columns of `HEADER`."""
        printed, measured, *decided = self.numbers
        name = "" if self.measured is None else f" ({self.measured.contrast.name})"
        return [self.claim.id, self.claim.place, stated(self.claim), printed, f"{measured}{name}", *decided]

    @property
    def numbers(self) -> list[str]:
        """The last four columns; the measured number without its name."""
        shown = self.measured
        return [
            "–" if self.printed is None else f"{self.printed.outcome}{_in_brackets(self.printed)}",
            "–" if shown is None else _value(shown),
            _interval(shown),
            _outcome(shown),
        ]


def judged(printed: Printed, runs: RunEvidence) -> list[Judged]:
    """All claims of a paper, decided by its printed numbers, and separately by runs."""
    return [Judged(claim, printed.finding(claim), runs.finding(claim)) for claim in runs.paper.claims]


def text(rows: Sequence[Judged], runs: RunEvidence) -> str:
    """The numbers for a terminal, below each claim what is stated and what is measured, and the summary."""
    numbers = ([row.claim.id, *row.numbers] for row in rows)
    header, *firsts = aligned([[HEADER[0], *HEADER[3:]], *numbers])
    lines = [header]
    for row, first in zip(rows, firsts, strict=True):
        below = [stated(row.claim)] if row.measured is None else [stated(row.claim), row.measured.contrast.name]
        lines += [
            first,
            *(line for one in below for line in wrap(one, WIDTH, initial_indent="  ", subsequent_indent="    ")),
        ]
    return "\n".join([*lines, "", *wrap(LEGEND, WIDTH), "", *wrap(summary(rows, runs), WIDTH)])


def page(rows: Sequence[Judged], runs: RunEvidence) -> str:
    """The Markdown page: the table, with each claim in words, and the claims without a statement."""
    experiment, file = runs.requested.experiment, runs.paper
    lines = [f"# Claims of {runs.requested.paper}, decided by runs of {experiment.name} ({runs.kind})", ""]
    lines += [summary(rows, runs), "", LEGEND, ""]
    header = [HEADER[0], HEADER[1], "in words", *HEADER[2:]]
    lines += markdown(header, [[*row.cells[:2], row.claim.about, *row.cells[2:]] for row in rows])
    if file.contradicted:
        lines += ["", "## Contradicted by the paper's own numbers", ""]
        lines += markdown(["claim", "why"], [[claim, why] for claim, why in file.contradicted.items()])
    if file.not_decided:
        lines += ["", "## Without a statement that a machine can decide", ""]
        lines += markdown(["place", "in words", "why"], [[one.place, one.about, one.why] for one in file.not_decided])
    return "\n".join(lines) + "\n"


def summary(rows: Sequence[Judged], runs: RunEvidence) -> str:
    """How many claims hold, by each kind of evidence."""
    return (
        f"{runs.requested.experiment.name}: {len(rows)} claims, {len(runs.paper.not_decided)} more have no statement "
        "that a machine can decide. "
        f"Print: {counts([row.printed for row in rows])}. "
        f"Runs ({runs.kind}): {counts([row.measured for row in rows])}."
    )


def counts(findings: Sequence[Decision | None]) -> str:
    """The number of claims with each outcome, such as '33 hold, 13 fail, 0 undecided, 9 without numbers'."""
    found = Counter(map(_outcome, findings))
    return ", ".join(f"{found[outcome]} {plural}" for outcome, plural in PLURALS.items())


def stated(claim: Claim) -> str:
    """A statement in a few signs: test_accuracy: fedgf > fedsam by ≥ 4.2."""
    (key,) = (form for form in FORMS if getattr(claim, form) is not None)
    form = claim.form
    subjects = said = _methods(form.subjects)
    if isinstance(form, MethodComparison):
        sign = ">" if key == "higher" else "<"
        bounds = f" by {_bounds(form.by)}" if form.by else f" by a factor {_bounds(form.factor)}" if form.factor else ""
        said = f"{subjects} {sign} {_methods(form.than)}{bounds}"
    elif isinstance(form, Change):
        lead = f" − {_methods(form.than)}" if form.than else ""
        bounds = f" by {_bounds(form.by)}" if form.by else ""
        said = f"{subjects}{lead} {key} {' → '.join(form.through)}{bounds}"
    elif isinstance(form, Level):
        said = f"{subjects} {_bounds(form)}"
    elif isinstance(form, Rank):
        rank = f"among the {form.rank} {key}" if form.rank > 1 else key
        said = f"{subjects} {rank} of {len(form.among)}"
    target = f" {claim.target:g}" if isinstance(claim.target, float) else f" of {claim.target}" if claim.target else ""
    over = "" if claim.over == "each" else f" ({claim.over})"
    return f"{claim.metric}{target}: {said}{over}"


def _methods(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) <= 2 else f"{len(labels)} methods"  # more do not fit into a column


def _bounds(bounds: Bounds | None) -> str:
    if bounds is None:
        return ""
    if bounds.equals is not None:
        return bounds.equals
    pairs = (("≥", bounds.at_least), ("≤", bounds.at_most))
    return ", ".join(f"{sign} {bound:g}" for sign, bound in pairs if bound is not None)


def _outcome(finding: Decision | None) -> str:
    return "–" if finding is None else finding.outcome


def _in_brackets(finding: Decision) -> str:
    return "" if finding.value is None else f" ({_value(finding)})"


def _value(finding: Decision) -> str:
    return "no value" if finding.value is None else _number(finding.value, log=finding.contrast.log)


def _interval(finding: Decision | None) -> str:
    if finding is None or finding.interval is None:
        return "–"
    low, high = (_number(bound, log=finding.contrast.log) for bound in finding.interval)
    return f"{low} to {high}"


def _number(value: float, *, log: bool) -> str:
    """Four digits; a ratio, not its logarithm."""
    return f"{math.exp(value) if log else value:.4g}{'×' if log else ''}"
