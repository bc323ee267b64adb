"""The look of a method's line on a web page: that of the figures, and its colour on a dark background."""

import colorsys
from typing import TypedDict

from matplotlib.colors import to_hex, to_rgb

from fedflat.analysis.figures.palette import Style

PAPER, DARK_PAPER = "#ffffff", "#17191c"
"""The backgrounds of the page."""

_LEAST_CONTRAST = 4.0
"""Of a line on a dark background; WCAG 2.2 asks for 3."""

_SYMBOLS = {
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "d": "diamond-tall",
    "v": "triangle-down",
    "^": "triangle-up",
    "<": "triangle-left",
    ">": "triangle-right",
    "*": "star",
    "p": "pentagon",
    "h": "hexagon",
    "H": "hexagon2",
    "8": "octagon",
    "P": "cross",
    "X": "x",
}
"""Markers of Matplotlib as Plotly names them."""

_BY_DASHES = {
    (): "circle",
    (5, 2): "square",
    (5, 1.5, 1, 1.5): "diamond",
    (1, 1.2): "cross",
    (7, 1.5, 1, 1.5, 1, 1.5): "x",
    (3, 1): "triangle-up",
    (1, 2.5): "pentagon",
    (9, 2): "star",
    (8, 2, 1, 2, 1, 2): "hexagon",
    (10, 1): "hexagon2",
    (2, 2): "octagon",
    (4, 1, 1, 1): "triangle-down",
    (6, 1, 2, 1): "triangle-left",
    (3, 1, 1, 1, 1, 1): "triangle-right",
}
"""The points of methods whose lines have no marker, by the dashes of the line."""


class WebLook(TypedDict):
    """Colours on light and dark backgrounds, on-off lengths of dashes in line widths, and a marker; `own`: a user's own
    method, which is on top of the others."""

    colour: str
    dark: str
    dashes: list[float]
    symbol: str
    own: bool


def web_look(style: Style) -> WebLook:
    """The look of a method on the page."""
    return {
        "colour": style.colour,
        "dark": _inverted(style.colour) if style.on_top else on_dark(style.colour),
        "dashes": list(style.dashes[1]),
        "symbol": _SYMBOLS[style.marker] if style.marker else _BY_DASHES[style.dashes[1]],
        "own": style.on_top,
    }


def on_dark(colour: str) -> str:
    """The colour, made as light as a line on a dark background needs; of two tones, the lighter one stays lighter."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    lightness = 0.42 + 0.5 * lightness
    while contrast(found := to_hex(colorsys.hls_to_rgb(hue, lightness, saturation)), DARK_PAPER) < _LEAST_CONTRAST:
        lightness += 0.01
    return found


def _inverted(colour: str) -> str:
    """Light for dark: the colours of a user's own methods are the darkest ones."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    return to_hex(colorsys.hls_to_rgb(hue, 1 - lightness, saturation))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours by WCAG 2.2, between 1 and 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
