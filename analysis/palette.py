"""One look per method in every figure: hue for where the gradient is taken, line and tone for its correction.

Hues are those of Okabe and Ito, which colour-blind readers can tell apart; line styles separate methods of
one colour, in black-and-white print too.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.colors import to_hex, to_rgb

from bench.config import Experiment
from bench.methods.catalog import recipe

Dashes = tuple[float, tuple[float, ...]]

# By the class of the perturbation: none, SAM (and its mixed form), ASAM, LESAM, GF.
_HUES = {
    "NoPerturbation": "#555555",
    "SAM": "#0072B2",
    "MixedSAM": "#0072B2",
    "ASAM": "#CC79A7",
    "LESAM": "#D55E00",
    "GF": "#009E73",
}
_OTHER_HUE = "#E69F00"


@dataclass(frozen=True)
class _Line:
    """Dashes, and a tone between black (-1) and white (1)."""

    dashes: Dashes
    tone: float = 0.0


# By the class of the correction; dashes are (offset, on-off lengths in line widths), none for a solid line.
_LINES = {
    "NoCorrection": _Line((0, ())),
    "ControlVariates": _Line((0, (5, 2)), -0.4),
    "DynamicRegulariser": _Line((0, (5, 1.5, 1, 1.5)), 0.35),
    "ClientMomentum": _Line((0, (1, 1.2)), 0.15),
}
_OTHER_LINE = _Line((0, (8, 2, 1, 2, 1, 2)))

# Entries of an experiment that share a catalog method (a search over rho, say) share its line, not markers.
_MARKERS = ("", "o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Style:
    """How a method's line is drawn."""

    colour: str
    dashes: Dashes
    marker: str = ""


def style(name: str, variant: int = 0) -> Style:
    """The look of a method of the catalog."""
    method = recipe(name)
    hue = _HUES.get(method.perturbation.__name__, _OTHER_HUE)
    line = _LINES.get(method.correction.__name__, _OTHER_LINE)
    return Style(_toned(hue, line.tone), line.dashes, _MARKERS[variant % len(_MARKERS)])


def _toned(hue: str, tone: float) -> str:
    """Mixed with white (tone > 0) or black (tone < 0)."""
    towards = 1.0 if tone > 0 else 0.0
    red, green, blue = (channel + abs(tone) * (towards - channel) for channel in to_rgb(hue))
    return to_hex((red, green, blue))


def styles(experiment: Experiment, labels: Iterable[str] | None = None) -> dict[str, Style]:
    """The look of each of an experiment's methods, by label."""
    seen: Counter[str] = Counter()
    looks = {}
    for label, entry in experiment.methods.items():
        name = entry.name or label
        looks[label] = style(name, seen[name])
        seen[name] += 1
    return looks if labels is None else {label: looks[label] for label in labels}
