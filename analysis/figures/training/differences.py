"""Final values compared with those of a reference method, run by run: paired differences with intervals."""

from collections.abc import Collection, Mapping
from typing import Literal, Self

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field

from analysis.figures.base import PanelLayout, count_seeds, most_side_by_side, new_figure
from analysis.figures.notes import diverged_note, missing_note
from analysis.figures.palette import Style, styles
from analysis.figures.training.final_values import FinalValuesLayout
from analysis.layouts.grid import PANELS_OF_GRID, GridPart
from analysis.layouts.tidy import Tidy, of_setting
from analysis.layouts.titles import method_titles, setting_title
from analysis.measures.paired import CONFIDENCE, interval
from bench.experiments.address import IDS, Setting
from bench.experiments.experiment import Experiment
from bench.input.errors import UserError

_SETTING = IDS[:3]
_ENOUGH = 3
"""With this number of runs in a setting, its panel has intervals."""


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
        runs, many = frame.groupby(IDS)["seed"].nunique(), len(self.panels) > 1
        what = f"{better}Differences of runs with the same setting and seed, {count_seeds(frame)}."
        if runs.max() == 1:
            over = "; in the panel of all settings, large points: means over settings" if many else ""
            return f"{what} Points: runs{over}."
        over = " (in the panel of all settings: their means over seeds)" if many else ""
        needs = (
            " An interval needs two runs in each setting, and three in one setting alone."
            if runs.min() < _ENOUGH
            else ""
        )
        return (
            f"{what} Small points: runs{over}; large points: means; lines: {100 * CONFIDENCE:g} % t-intervals from the "
            "spread within settings, which contain the true mean in 94 to 98 % of cases if differences are normally "
            f"distributed.{needs if runs.min() < _ENOUGH else ''}"
        )

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure; panels share the methods. Runs that diverged have no difference, and are named at the foot."""
        experiment, names = tidy.experiment, method_titles(tidy.experiment)
        reference = self.reference_in(experiment)
        metrics = tidy.gather("metrics", self.cells(experiment))
        pairs = self.differences(frame, experiment)
        if pairs.empty:
            raise UserError(f"nothing to draw for '{self.title}': no run of {reference} has a partner")
        settings = self.settings(experiment)
        shown = {
            panel.heading(place): of_setting(pairs, place) for panel, place in zip(self.panels, settings, strict=True)
        }
        counts = {method: _pairs_by_setting(rows, pairs) for method, rows in pairs.groupby("method")}
        partial = {method for method, count in counts.items() if (count == 0).any()}
        mean = pairs.groupby("method")["difference"].mean()
        sign = 1 if self.quantity.better == "lower" else -1
        order = sorted(mean.index, key=lambda method: (method in partial, sign * mean[method]))
        if len(shown) > 1:
            compared = len(pairs[_SETTING].drop_duplicates())
            title = f"{'All' if compared == len(settings) else f'{compared} of'} {len(settings)} settings"
            shown = {title: pairs, **shown}
        notes = [
            diverged_note(metrics, names, "no difference"),
            _places_note("no mean over all settings", "no pair", {m: counts[m][counts[m] == 0] for m in order}, names),
            _places_note("no interval over all settings", "one pair", {m: _stops(counts[m]) for m in order}, names),
            missing_note(frame, self, tidy),
        ]
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
                rows, look = of_panel[of_panel["method"] == method], looks[str(method)]
                if of_panel is not pairs:
                    _draw_method(axes, rows, rows["difference"], place, look)
                else:
                    means = rows.groupby(_SETTING)["difference"].mean()
                    _draw_method(axes, rows, means, place, look, whole=method not in partial)
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


def _draw_method(
    axes: Axes, pairs: pd.DataFrame, points: pd.Series, place: int, look: Style, *, whole: bool = True
) -> None:
    """Small points; and, unless settings are missing (`whole`), the mean of all pairs, and its interval."""
    x = points.to_numpy(float)
    axes.plot(x, np.full(x.size, place + 0.25), "o", color=look.colour, markersize=2.2, alpha=0.6, markeredgewidth=0)
    if pairs.empty or not whole:
        return
    low, high = interval(pairs["difference"], pairs[_SETTING].agg("/".join, axis=1))
    if np.isfinite(low):
        axes.hlines(place, low, high, color=look.colour, linewidth=1.4)
    axes.plot(pairs["difference"].mean(), place, "o", color=look.colour, markersize=4.5)


def _pairs_by_setting(rows: pd.DataFrame, pairs: pd.DataFrame) -> pd.Series:
    """The number of a method's pairs in each setting that has pairs of any method."""
    settings = pd.MultiIndex.from_frame(pairs[_SETTING].drop_duplicates())
    return pd.Series(rows.groupby(_SETTING).size().reindex(settings, fill_value=0))


def _stops(counts: pd.Series) -> pd.Series:
    """Where a method has a single pair, so that it has no interval over settings in which it has more."""
    single: pd.Series = counts[counts == 1]
    return single if counts.min() == 1 < counts.max() else single[:0]


def _places_note(what: str, why: str, found: Mapping[str, pd.Series], names: Mapping[str, str]) -> str:
    """For example 'no mean over all settings: FedSAM (no pair in Dirichlet 0.1, 4 of 20 clients)', or nothing."""
    parts = []
    for method, there in found.items():
        if places := [setting_title(Setting(*place)) for place in there.index]:
            parts.append(f"{names[method]} ({why} in {' and '.join(places)})")
    return f"{what}: {'; '.join(parts)}" if parts else ""
