"""Groups of vertical bars: one group per column of a table, one bar per method."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from fedflat.analysis.figures.base import LEGEND, Body, legend_columns
from fedflat.analysis.figures.palette import Style

_HATCHES = ("", "//////", "......", "xxxxxx")
"""Methods with the same colour differ in their hatches."""

_GROUP = 0.84
"""Width of a group in units of the distance between groups."""


def draw_bars(axes: Axes, means: pd.DataFrame, deviations: pd.DataFrame, looks: Mapping[str, Style]) -> None:
    """Bars of `means` (methods × groups), with a line of ± one of `deviations`, which may be NaN."""
    width = _GROUP / len(means)
    places = np.arange(len(means.columns))
    for (method, patch), offset in zip(
        _patches(looks).items(), np.arange(len(means)) - (len(means) - 1) / 2, strict=True
    ):
        x = places + offset * width
        axes.bar(x, means.loc[method], width=width, **patch)
        axes.errorbar(x, means.loc[method], deviations.loc[method], fmt="none", ecolor="black", elinewidth=0.6)
    axes.set_xticks(
        places, [str(name).replace("_", " ") for name in means.columns], rotation=40, ha="right", rotation_mode="anchor"
    )
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")


def draw_bars_legend(body: Body, looks: Mapping[str, Style], names: Mapping[str, str], width: float) -> None:
    """One legend below the panel; `width` in inches."""
    handles = [Patch(label=names[method], **patch) for method, patch in _patches(looks).items()]
    columns = legend_columns([names[method] for method in looks], width)
    body.legend(handles=handles, loc="outside lower center", ncols=columns, **LEGEND)


def _patches(looks: Mapping[str, Style]) -> dict[str, dict[str, Any]]:
    """How each method's bars are filled."""
    seen: dict[str, int] = {}
    patches: dict[str, dict[str, Any]] = {}
    for method, look in looks.items():
        k = seen[look.colour] = seen.get(look.colour, -1) + 1
        patches[method] = {
            "facecolor": look.colour,
            "edgecolor": "white",
            "linewidth": 0,
            "hatch": _HATCHES[k % len(_HATCHES)],
        }
    return patches
