"""Final values compared with those of a reference method, run by run: paired differences with intervals."""

from collections.abc import Collection
from typing import Literal, Self

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from analysis.figures.base import PanelLayout, count_seeds, most_side_by_side, new_figure
from analysis.figures.notes import diverged_note, missing_note
from analysis.figures.palette import Style, styles
from analysis.figures.training.final_values import FinalValuesLayout
from analysis.layouts.grid import PANELS_OF_GRID, GridPart
from analysis.layouts.tidy import Tidy, of_setting
from analysis.layouts.titles import method_titles
from analysis.measures.paired import CONFIDENCE, interval
from bench.experiments.address import IDS
from bench.experiments.experiment import Experiment
from bench.input.errors import UserError

_SETTING = IDS[:3]


class DifferencesLayout(FinalValuesLayout, PanelLayout):
    """One panel over all settings and one per setting; in each, a line of points per method, the best method first."""

    kind: Literal["differences"] = "differences"
    grid: GridPart = Field(default="all", description=PANELS_OF_GRID)
    reference: tuple[str, ...] = Field(
        default=("fedavg",),
        min_length=1,
        description="the method with which others are compared, in order of preference; if the figure shows none of "
        "them: its first method. {reference} in title and caption stands for it",
    )

    def fitted(self, experiment: Experiment, others: Collection[str] = ()) -> Self:
        """The layout for an experiment, with the name of the reference in its title and caption."""
        layout = super().fitted(experiment, others)
        name = method_titles(experiment)[layout.reference_in(experiment)]
        texts = {field: getattr(layout, field).replace("{reference}", name) for field in ("title", "caption")}
        return layout.model_copy(update=texts)

    def is_shown(self, experiment: Experiment) -> bool:
        """Whether at least two of its methods are chosen, which it compares."""
        return len({cell.method for cell in self.cells(experiment)}) > 1

    def reference_in(self, experiment: Experiment) -> str:
        """The label of the reference."""
        shown = [method for method in self.methods if experiment.is_chosen(method)] or self.methods
        return next((method for method in self.reference if method in shown), shown[0])

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of points and lines."""
        better = {"higher": "Higher is better. ", "lower": "Lower is better. ", "none": ""}[self.quantity.better]
        over = ", resampled within settings" if len(self.panels) > 1 else ""
        return (
            f"{better}Differences of runs with the same setting and seed, {count_seeds(frame)}. Small points: runs (in "
            f"the panel of all settings: their means over seeds); large points: means; lines: {100 * CONFIDENCE:g} % "
            f"bootstrap intervals{over}, rough for few seeds."
        )

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share the methods. Runs that diverged have no difference, and are named at the foot."""
        experiment, names = tidy.experiment, method_titles(tidy.experiment)
        reference = self.reference_in(experiment)
        metrics = tidy.gather("metrics", self.cells(experiment))
        notes = [diverged_note(metrics, names, "no difference"), missing_note(frame, self, tidy)]
        pairs = self.differences(frame, experiment)
        if pairs.empty:
            raise UserError(f"nothing to draw for '{self.title}': no run of {reference} has a partner")
        mean = pairs.groupby("method")["difference"].mean()
        order = list(mean.sort_values(ascending=self.quantity.better == "lower", kind="stable").index)
        settings = self.settings(experiment)
        shown = {
            panel.heading(place): of_setting(pairs, place) for panel, place in zip(self.panels, settings, strict=True)
        }
        if len(shown) > 1:
            shown = {f"All {len(settings)} settings": pairs, **shown}
        columns = most_side_by_side(len(shown))
        rows = -(-len(shown) // columns)
        figure, body = new_figure(self.width, rows * (0.17 * len(order) + 0.45) + 0.3, notes)
        grid = body.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        looks = styles(experiment, self.methods)
        for axes in grid.flat[len(shown) :]:
            axes.set_visible(False)
        for axes, (title, of_panel) in zip(grid.flat, shown.items(), strict=False):
            axes.axvline(0, color="#777777", linewidth=0.8, zorder=1)
            for place, method in enumerate(order):
                _draw_method(axes, of_panel[of_panel["method"] == method], place, looks[str(method)])
            axes.set_title(title)
            axes.grid(visible=False, axis="y")
        grid[0, 0].set_yticks(range(len(order)), [names[str(method)] for method in order])
        grid[0, 0].set_ylim(len(order) - 0.4, -0.6)
        for axes in list(grid.flat[: len(shown)])[-columns:]:
            axes.tick_params(labelbottom=True)
        unit = self.quantity.title[0].upper() + self.quantity.title[1:]
        body.supxlabel(f"{unit}: difference to {names[reference]}", fontsize=8)
        return figure

    def differences(self, frame: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
        """One row per run of another method whose partner, the reference's run, has a value: its `difference`."""
        values, reference = self.values(frame, experiment), self.reference_in(experiment)
        pair = [*_SETTING, "seed"]
        partners = values[values["method"] == reference].set_index(pair)["value"].rename("partner")
        joined = values[values["method"] != reference].join(partners, on=pair)
        joined["difference"] = joined["value"] - joined["partner"]
        return joined[np.isfinite(joined["difference"].astype(float))].reset_index(drop=True)


def _draw_method(axes: Axes, pairs: pd.DataFrame, place: int, look: Style) -> None:
    """A point per run (or per setting, if there are several), the mean, and its interval."""
    if pairs.empty:
        return
    settings = pairs[_SETTING].agg("/".join, axis=1)
    values: NDArray[np.float64] = pairs["difference"].to_numpy(float)
    small = values if settings.nunique() == 1 else pairs.groupby(settings)["difference"].mean().to_numpy(float)
    low, high = interval(values, settings.to_numpy())
    if np.isfinite(low):
        axes.hlines(place, low, high, color=look.colour, linewidth=1.4)
    axes.plot(
        small, np.full(small.size, place + 0.25), "o", color=look.colour, markersize=2.2, alpha=0.6, markeredgewidth=0
    )
    axes.plot(values.mean(), place, "o", color=look.colour, markersize=4.5)
