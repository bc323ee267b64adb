"""The look of a method, the same in every figure: its perturbation decides the hue, its correction the line style and
tone, its server or loss the marker. A user's own method is dark and solid, and on top of the others.

Hues are those of Okabe and Ito, which colour-blind readers can distinguish; line styles distinguish methods of one hue,
also in black-and-white print.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.colors import to_hex, to_rgb

from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.methods.recipe import Recipe

Dashes = tuple[float, tuple[float, ...]]

# By the perturbation.
_HUES = {
    "none": "#555555",
    "sam": "#0072B2",
    **dict.fromkeys(("mixed_sam", "dp_fedsam", "fedgloss", "fednsam"), "#0072B2"),  # forms of SAM
    "asam": "#CC79A7",
    "lesam": "#D55E00",
    "gf": "#009E73",
    "smoo": "#56B4E9",
    "toga": "#A6761D",
    "fedscam": "#882255",
    "fedwmsam": "#999933",
}
_OTHER_HUE = "#E69F00"


@dataclass(frozen=True)
class _Line:
    """Dashes, and a tone between black (-1) and white (1)."""

    dashes: Dashes
    tone: float = 0.0


# By the correction; dashes are (offset, on-off lengths in line widths), none for a solid line.
_LINES = {
    "none": _Line((0, ())),
    "scaffold": _Line((0, (5, 2)), -0.4),
    "feddyn": _Line((0, (5, 1.5, 1, 1.5)), 0.35),
    "fedcm": _Line((0, (1, 1.2)), 0.15),
    "feddc": _Line((0, (7, 1.5, 1, 1.5, 1, 1.5)), -0.2),
    "prox": _Line((0, (3, 1)), 0.3),
    "mimelite": _Line((0, (1, 2.5)), -0.2),
    "adabest": _Line((0, (9, 2)), 0.2),
    "dp_fedsam": _Line((0, (10, 1)), -0.3),
    "fedgmt": _Line((0, (2, 2)), 0.25),
    "fedswa": _Line((0, (4, 1, 1, 1)), 0.1),
    "fedmoswa": _Line((0, (6, 1, 2, 1)), -0.3),
    "fedwmsam": _Line((0, (3, 1, 1, 1, 1, 1))),
}
_OTHER_LINE = _Line((0, (8, 2, 1, 2, 1, 2)))

# By the server, or the loss, if hue and line do not distinguish the methods.
_OWN_MARKERS = {
    "momentum": "v",
    "adam": "^",
    "adagrad": "<",
    "yogi": ">",
    "look_ahead": "d",
    "adabest": "*",
    "relaxed_contrastive": "p",
    "affine_shift": "h",
    "fedgmt": "h",
    "fedgloss": "p",
    "fednsam": "d",
}

# Of user-defined methods, in their order; all are solid.
_OWN_COLOURS = ("#000000", "#7A0019", "#00205B", "#003B2F")

# Entries of one catalog method (such as a search over rho) differ in their markers only, if other methods are shown.
_MARKERS = ("", "o", "s", "D", "P", "X", "H", "8")


@dataclass(frozen=True)
class Style:
    """How a method's line is drawn."""

    colour: str
    dashes: Dashes
    marker: str = ""
    on_top: bool = False


# Lines that are not one per method, or all of one method, in their order: hues of Okabe and Ito, and dashes for
# black-and-white print.
_COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES: tuple[Dashes, ...] = ((0, ()), (0, (5, 2)), (0, (5, 1.5, 1, 1.5)), (0, (1, 1.2)))


def line_look(number: int) -> Style:
    """The look of a line by its number; from the eighth on, lines have markers, too."""
    round_of_colours, colour = divmod(number, len(_COLOURS))
    return Style(_COLOURS[colour], _DASHES[colour % len(_DASHES)], _MARKERS[round_of_colours % len(_MARKERS)])


def style(method: Recipe, variant: int = 0) -> Style:
    """The look of a method; `variant` numbers the entries of an experiment with the same catalog method."""
    line = _LINES.get(method.components.correction.name, _OTHER_LINE)
    parts = (method.components.server.name, method.components.loss.name)
    own = next((_OWN_MARKERS[part] for part in parts if part in _OWN_MARKERS), "")
    colour = _toned(hue(method.components.perturbation.name), line.tone)
    return Style(colour, line.dashes, _MARKERS[variant % len(_MARKERS)] or own)


def hue(perturbation: str) -> str:
    """The hue of methods with this perturbation, by its name."""
    return _HUES.get(perturbation, _OTHER_HUE)


def own_style(number: int) -> Style:
    """The look of a user-defined method; `number` numbers those of an experiment."""
    round_of_colours, colour = divmod(number, len(_OWN_COLOURS))
    return Style(_OWN_COLOURS[colour], (0, ()), _MARKERS[round_of_colours % len(_MARKERS)], on_top=True)


def _toned(colour: str, tone: float) -> str:
    """The colour mixed with white (tone > 0) or black (tone < 0)."""
    towards = 1.0 if tone > 0 else 0.0
    red, green, blue = (channel + abs(tone) * (towards - channel) for channel in to_rgb(colour))
    return to_hex((red, green, blue))


def styles(experiment: Experiment, labels: Iterable[str] | None = None) -> dict[str, Style]:
    """The look of each method of an experiment, by label; equal methods get different markers.

    A user's own methods get the dark colours, whatever their components are. `labels`: the methods that are shown
    together. If all are entries of one catalog method, they get different colours.
    """
    seen: Counter[str] = Counter()
    looks, names = {}, {}
    for label, entry in experiment.methods.items():
        method = entry.choice(label).recipe
        looks[label], names[label] = style(method, seen[method.name]), method.name
        seen[method.name] += 1
    looks |= {label: own_style(number) for number, label in enumerate(experiment.own_methods)}
    if labels is None:
        return looks
    shown = list(labels)
    if len(shown) > 1 and len({names[label] for label in shown}) == 1:
        return {label: line_look(number) for number, label in enumerate(shown)}
    return {label: looks[label] for label in shown}
