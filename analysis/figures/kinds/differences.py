"""Final values compared with those of a reference method, run by run: paired differences with intervals."""

from collections.abc import Collection, Mapping
from typing import ClassVar, Literal, Self

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from fedflat.analysis.figures.base import PanelLayout, count_seeds, most_side_by_side, new_figure
from fedflat.analysis.figures.kinds.final_values import FinalValuesLayout
from fedflat.analysis.figures.notes import diverged_note, missing_note
from fedflat.analysis.figures.palette import Style, styles
from fedflat.analysis.layouts.grid import PANELS_OF_GRID, GridPart
from fedflat.analysis.layouts.tidy import Tidy, of_setting
from fedflat.analysis.layouts.titles import method_titles
from fedflat.analysis.measures.paired import CONFIDENCE, LEAST_PAIRS, interval
from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError

_SETTING = IDS[:3]
_SEED = ["method", "seed"]


class DifferencesLayout(FinalValuesLayout, PanelLayout):
    """One panel over all settings and one per setting; in each, a line of points per method, the best method first."""

    page_order: ClassVar[int] = 3
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
        over = "in the panel of all settings, their means over the settings"
        if runs.max() == 1:
            return f"{what} Points: runs{f'; {over}' if many else ''}."
        needs = f" An interval needs {LEAST_PAIRS} seeds." if runs.min() < LEAST_PAIRS else ""
        return (
            f"{what} Small points: runs{f' ({over} by seed)' if many else ''}; large points: means; "
            f"lines: {100 * CONFIDENCE:g} % t-intervals over seeds.{needs}"
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
        whole = _over_settings(pairs)
        mean = pairs.groupby("method")["difference"].mean()
        mean.update(whole.groupby("method")["difference"].mean())
        partial = set(mean.index) - set(whole["method"])
        sign = 1 if self.quantity.better == "lower" else -1
        order = sorted(mean.index, key=lambda method: (method in partial, sign * mean[method]))
        if len(shown) > 1:
            compared = len(pairs[_SETTING].drop_duplicates())
            title = f"{'All' if compared == len(settings) else f'{compared} of'} {len(settings)} settings"
            shown = {title: whole, **shown}
        notes = [
            diverged_note(metrics, names, "no difference"),
            _left_out_note(pairs, whole, order, names) if len(shown) > 1 else "",
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
                found = of_panel.loc[of_panel["method"] == method, "difference"].to_numpy(float)
                _draw_method(axes, found, place, looks[str(method)])
            axes.set_title(title)
            axes.grid(visible=False, axis="y")
        grid[0, 0].set_yticks(range(len(order)), [names[str(method)] for method in order])
        grid[0, 0].set_ylim(len(order) - 0.4, -0.6)
        for axes in list(grid.flat[: len(shown)])[-columns:]:
            axes.tick_params(labelbottom=True)
        unit = self.quantity.with_unit[0].upper() + self.quantity.with_unit[1:]
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


def _draw_method(axes: Axes, differences: NDArray[np.float64], place: int, look: Style) -> None:
    """Small points; if there are any: a large one at their mean, and its interval."""
    low, high = interval(differences)
    below = np.full(differences.size, place + 0.25)
    axes.plot(differences, below, "o", color=look.colour, markersize=2.2, alpha=0.6, markeredgewidth=0)
    if np.isfinite(low):
        axes.hlines(place, low, high, color=look.colour, linewidth=1.4)
    if differences.size:
        axes.plot(differences.mean(), place, "o", color=look.colour, markersize=4.5)


def _over_settings(pairs: pd.DataFrame) -> pd.DataFrame:
    """One row per method and seed that has a pair in every setting: its mean `difference` over the settings."""
    by_seed = pairs.groupby(_SEED)["difference"].agg(["mean", "size"])
    complete = by_seed[by_seed["size"] == len(pairs[_SETTING].drop_duplicates())]
    return complete["mean"].rename("difference").reset_index()


def _left_out_note(pairs: pd.DataFrame, whole: pd.DataFrame, order: list[str], names: Mapping[str, str]) -> str:
    """The seeds of each method that are not in its mean over all settings; or nothing."""
    left = set(map(tuple, pairs[_SEED].to_numpy())) - set(map(tuple, whole[_SEED].to_numpy()))
    parts = []
    for method in order:
        if seeds := sorted(seed for other, seed in left if other == method):
            parts.append(f"{names[method]} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))})")
    return f"not in the means over all settings, because a setting has no pair: {'; '.join(parts)}" if parts else ""
