"""The costs of methods: traffic, gradients, seconds (FedLESAM, Tables 7 and 8; FedGF, Table 3)."""

import math
import textwrap
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field, field_validator

from fedflat.analysis.figures.base import DEVIATION, OneSettingLayout, means_and_deviations, new_figure
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.figures.palette import Style, styles
from fedflat.analysis.layouts.captions import definition
from fedflat.analysis.layouts.quantities import QUANTITIES
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.layouts.titles import method_titles
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.input.errors import unknown

_KNOWN = [name for name, quantity in QUANTITIES.items() if quantity.file == "cost"]

_PALE = 0.3
"""How opaque times are drawn: they depend on other load."""

_SPLIT, _PART = "seconds_per_round", "train_seconds_per_round"
"""A time, and the part of it that is filled."""


class CostLayout(OneSettingLayout):
    """One panel of bars per quantity, one bar per method, in one setting."""

    needs: ClassVar[str] = "cost"
    page_order: ClassVar[int] = 19
    kind: Literal["cost"] = "cost"
    quantities: tuple[str, ...] = Field(
        default=("transmissions_per_round", "gradients_per_step", "seconds_per_round"),
        min_length=1,
        description="metrics of the analysis cost, a panel for each",
    )

    @field_validator("quantities")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in _KNOWN:
                raise unknown("quantity of cost", name, _KNOWN)
        return names

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of its quantities."""
        return frame[frame["metric"].isin(self.quantities)]

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of bars."""
        split = " Seconds per round: white for evaluation." if _SPLIT in self.quantities else ""
        load = " Times include what else the machine did: they do not compare methods." if self._has_times else ""
        return means_and_deviations(frame, "Bars", f"lines on them: {DEVIATION}") + split + load

    @property
    def _has_times(self) -> bool:
        return any(map(_is_time, self.quantities))

    def computed(self, frame: pd.DataFrame) -> str:
        """What was computed, for the quantities with one definition together."""
        titles: dict[str, list[str]] = {}
        for name in self.quantities:
            if text := definition(frame[frame["metric"] == name], self.file):
                titles.setdefault(text, []).append(QUANTITIES[name].title)
        sentences = ("; ".join(names) + f": {text}." for text, names in titles.items())
        return " ".join(f"{sentence[0].upper()}{sentence[1:]}" for sentence in sentences)

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share the methods."""
        (setting,) = self.settings(tidy.experiment)
        present = [method for method in self.methods if not of_cell(frame, CellAddress(setting, method)).empty]
        looks, names = styles(tidy.experiment, present), method_titles(tidy.experiment)
        figure, body = new_figure(self.width, 0.17 * len(present) + 0.9, [missing_note(frame, self, tidy)])
        panels = body.subplots(1, len(self.quantities), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, self.quantities, strict=True):
            values = {
                method: rows.loc[rows["metric"] == name, "value"].to_numpy(float)
                for method in present
                if name in set((rows := of_cell(frame, CellAddress(setting, method)))["metric"])
            }
            digits = decimals([float(of_method.mean()) for of_method in values.values()])
            for method, of_method in values.items():
                _draw_bar(axes, present.index(method), of_method, looks[method], digits, pale=_is_time(name))
                if name == _SPLIT:
                    rows = of_cell(frame, CellAddress(setting, method))
                    part = rows.loc[rows["metric"] == _PART, "value"].mean()
                    axes.barh(present.index(method), part, height=0.7, color=looks[method].colour, alpha=_PALE)
            title = QUANTITIES[name].with_unit
            load = ", with other load" if _is_time(name) else ""
            axes.set_xlabel(textwrap.fill(f"{title[0].upper()}{title[1:]}{load}", 26))
            axes.grid(visible=False, axis="y")
            axes.margins(x=0.2)
            axes.set_xlim(left=0)
        panels[0].set_yticks(range(len(present)), [names[method] for method in present])
        panels[0].invert_yaxis()
        body.suptitle(self.select.heading(setting), fontsize=8)
        return figure


def decimals(values: Sequence[float]) -> int:
    """The decimals with which the largest value has three digits; none for whole numbers."""
    finite = [abs(value) for value in values if math.isfinite(value)]
    if all(value == round(value) for value in finite):
        return 0
    return min(max(0, 2 - math.floor(math.log10(max(finite)))), 6)


def _is_time(name: str) -> bool:
    return "seconds" in name


def _draw_bar(axes: Axes, place: int, values: NDArray[np.float64], look: Style, digits: int, *, pale: bool) -> None:
    """A bar with its number; the `pale` ones of times are no more than outlines."""
    mean, spread = float(values.mean()), float(np.std(values, ddof=1)) if values.size > 1 else 0.0
    axes.barh(place, mean, height=0.7, color="none" if pale else look.colour, edgecolor=look.colour, linewidth=0.8)
    if spread:
        axes.errorbar(mean, place, xerr=spread, color="black", linewidth=0.8)
    axes.annotate(
        f"{mean:,.{digits}f}",
        (mean + spread, place),
        xytext=(2, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
    )
