"""What the figures of a comparison share: colours of verdicts; looks of methods."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from fedflat.analysis.comparison.compare import Comparison
from fedflat.analysis.comparison.statistics.costs import REFERENCE
from fedflat.analysis.comparison.statistics.verdicts import BETTER, NONE, UNCLEAR, WORSE
from fedflat.analysis.figures.palette import Style, line_look

OWN = "#000000"
OTHER = "#8a8a8a"
COLOURS = {BETTER: "#0072B2", UNCLEAR: "#8a8a8a", WORSE: "#D55E00", NONE: "#8a8a8a"}
"""Verdicts on the method; hues of Okabe and Ito."""

MARKERS = {BETTER: "o", UNCLEAR: "|", WORSE: "s", NONE: "|"}
"""Also the shapes differ, for black-and-white print."""

ROW = 0.145
"""Height of a line of text, in inches."""

_MOST_NAMED = 5


def named_looks(comparison: Comparison, best: Sequence[str]) -> dict[str, Style]:
    """The looks of the methods that a figure names: the compared one, the `best` others, and FedAvg."""
    shown = [method for method in best if method != comparison.method][:_MOST_NAMED]
    if REFERENCE in comparison.scores.methods and REFERENCE not in (comparison.method, *shown):
        shown.append(REFERENCE)
    return {method: line_look(number) for number, method in enumerate((comparison.method, *shown))}


def bold_own(axes: Axes, methods: Sequence[str], method: str) -> None:
    """Print the method's name in bold among the labels of the y axis."""
    for label, name in zip(axes.get_yticklabels(), methods, strict=True):
        label.set_fontweight("bold" if name == method else "normal")
