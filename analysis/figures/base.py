"""The common parts of figures: fields of layouts, font sizes for print, lines with bands, legends, notes."""

import textwrap
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter
from pydantic import Field

from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.figures.palette import Style, styles
from fedflat.analysis.layouts.captions import definition
from fedflat.analysis.layouts.grid import PANELS_OF_GRID, GridPart, grid_settings, part_prefix
from fedflat.analysis.layouts.layout import Layout, Selection
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.layouts.titles import method_titles, partition_title, setting_title
from fedflat.analysis.measures.convergence import curves
from fedflat.bench.experiments.address import IDS, Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.input.errors import UserError

# Two-column width of ICML, in inches. Figures are drawn in their printed size, and so are their fonts.
TEXT_WIDTH = 6.75
Body = Figure | SubFigure
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "pdf.fonttype": 42,  # TrueType; many submission systems refuse type 3 fonts
    "savefig.dpi": 200,
}


@contextmanager
def figure_style(changes: Mapping[str, Any] | None = None) -> Iterator[None]:
    """In the block, figures have `STYLE` with these changes over matplotlib's own defaults.

    A matplotlibrc of the user, or of the current folder, has no effect.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE | dict(changes or {}))
        yield


LEGEND: dict[str, Any] = {"frameon": False, "handlelength": 3.2, "columnspacing": 1.4}
DEVIATION = "± one sample standard deviation"
_MOST_BANDS = 4
"""More bands hide each other's lines."""
_FEW_POINTS = 5
"""Lines through at most so many points show them: two points are no trend."""


class FigureLayout(Layout):
    """A figure of any kind. `needs` is the analysis (or the kind of a run's tidy file) that it draws; `of_one_setting`:
    whether it shows one setting, that of its key `select`; `page_order`: the place of the kind on pages, after those of
    lower numbers: results, flatness, single clients, single images, what describes the runs, and then new kinds."""

    needs: ClassVar[str]
    of_one_setting: ClassVar[bool] = False
    page_order: ClassVar[int] = 100
    kind: str = Field(description="one of those below")
    analysis: str | None = Field(
        default=None, description="name of the analysis that it draws; null: the one named like its kind"
    )
    width: float = Field(default=TEXT_WIDTH, gt=1, le=20, description="inches, as printed")

    @property
    def file(self) -> str:
        """The kind of tidy file that it reads."""
        return self.analysis or self.needed_file

    @property
    def needed_file(self) -> str:
        """The analysis (or the kind of a run's tidy file) that it draws: `needs`, unless its fields decide."""
        return self.needs

    @property
    def shows_one_seed(self) -> bool:
        """Whether it gets the rows of `shown_seed` only."""
        return False

    def shown_seed(self, experiment: Experiment) -> int:
        """The seed shown by figures of single runs: the experiment's first, unless the layout names another."""
        return experiment.grid.seeds[0]

    def inputs(self, experiment: Experiment, paths: ResultPaths) -> list[Path]:
        """The tidy files that the figure reads."""
        seed = self.shown_seed(experiment)
        return [paths.tidy(experiment.name, cell.path, self.file, seed) for cell in self.cells(experiment)]

    @property
    def spans_rounds(self) -> bool:
        """Whether it shows means over several evaluations, or not every round."""
        final = getattr(self, "final", None)
        spans = (getattr(self, "window", 1), getattr(self, "every", 1), getattr(final, "n", None) or 1)
        return max(spans) > 1

    def is_shown(self, experiment: Experiment) -> bool:
        """Whether it has something to show of the chosen methods."""
        return bool(self.cells(experiment))

    def check(self, experiment: Experiment, analysis: Analysis | None) -> None:
        """A `UserError` if the runs, or the options of the analysis that it draws, lack what it shows."""
        seed = self.shown_seed(experiment)
        if seed not in experiment.grid.seeds:
            raise UserError(f"seed = {seed} (allowed: {', '.join(map(str, experiment.grid.seeds))})")

    def also(self) -> tuple[str, ...]:
        """The columns that it draws and that only some runs have."""
        return ()

    def drawn(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of its tidy files that it draws."""
        return frame

    def computed(self, frame: pd.DataFrame) -> str:
        """A sentence for the caption: what was computed, from the column `definition`; empty if there is none."""
        text = definition(self.drawn(frame), self.file)
        return f"Computed: {text}." if text else ""

    def reported_value(self, experiment: Experiment) -> str:
        """A sentence for the caption: which value of a run is shown; empty for figures of other data."""
        return ""

    @abstractmethod
    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure. `frame` holds the rows of the tidy files that it reads, at least one."""

    @abstractmethod
    def statistics(self, frame: pd.DataFrame) -> str:
        """A sentence for the caption: the meaning of lines, bands and colours."""


class BandsLayout(FigureLayout):
    """A figure of lines, with bands around them if there are few: many bands hide the lines."""

    bands: bool | None = Field(
        default=None,
        description=f"whether bands show the deviation; null: if no panel has more than {_MOST_BANDS} lines with data",
    )

    def has_bands(self, frame: pd.DataFrame) -> bool:
        """Whether lines of these rows have bands."""
        return self.allows_bands(self.most_lines(frame))

    def allows_bands(self, lines: int) -> bool:
        """Whether panels with at most this number of lines have bands."""
        return lines <= _MOST_BANDS if self.bands is None else self.bands

    def most_lines(self, frame: pd.DataFrame) -> int:
        """The largest number of lines in a panel: by default, a line per method, and a panel per setting."""
        return int(frame.groupby(IDS[:3])["method"].nunique().max())

    def means(self, frame: pd.DataFrame, lines: str = "Lines", bands: str = DEVIATION) -> str:
        """A sentence for the caption: lines are means over seeds; what bands are, if there are any."""
        return means_and_deviations(frame, lines, f"bands: {bands}" if self.has_bands(frame) else "")

    def means_of_curves(self, frame: pd.DataFrame, *columns: str) -> str:
        """The same for figures that draw these columns over rounds, and what single points are."""
        points = ""
        if any((curves(frame, column).groupby(IDS).size() == 1).any() for column in columns):
            points = " Single points: marks and bars instead, side by side within their round."
        return f"{self.means(frame, bands=f'{DEVIATION}, cut to possible values')}{points}"


class OneSeedLayout(FigureLayout):
    """A figure of one run per cell, all with the same seed; it gets the rows of that seed only."""

    seed: int | None = Field(examples=[0], default=None, description="the runs' seed; null: the experiment's first")

    @property
    def shows_one_seed(self) -> bool:
        """Always."""
        return True

    def shown_seed(self, experiment: Experiment) -> int:
        """The seed that is shown."""
        return super().shown_seed(experiment) if self.seed is None else self.seed


class Panel(Selection):
    """One panel: a setting and its heading (default: the title of the setting)."""

    title: str | None = Field(default=None, description="heading; null: the setting in words")

    def heading(self, setting: Setting) -> str:
        """The panel's title."""
        return self.title or setting_title(setting)


AnyPanel = TypeVar("AnyPanel", bound=Panel)


class OneSettingLayout(FigureLayout):
    """A figure of one setting."""

    of_one_setting: ClassVar[bool] = True
    select: Panel = Field(default=Panel(), description="the setting; missing fields: those of the main setting")

    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The one setting."""
        return (self.select.setting(experiment),)

    def _over_grid(self, experiment: Experiment) -> Self:
        return self.model_copy(update={"select": self.select.completed(experiment)})


class PanelLayout(FigureLayout):
    """A figure with one panel per setting."""

    panels: tuple[Panel, ...] = Field(default=(), description="the panels; empty: those of `grid`")
    grid: GridPart = Field(default="partitions", description=PANELS_OF_GRID)

    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """The panels' settings, in order."""
        return tuple(panel.setting(experiment) for panel in self.panels)

    def _over_grid(self, experiment: Experiment) -> Self:
        return self if self.panels else self.model_copy(update={"panels": grid_panels(Panel, experiment, self.grid)})


def grid_panels(cls: type[AnyPanel], experiment: Experiment, grid: GridPart) -> tuple[AnyPanel, ...]:
    """One panel for each setting of the grid; the heading names the part of an experiment with several parts."""
    panels = []
    for setting in grid_settings(experiment, grid):
        prefix = part_prefix(experiment, setting)
        title = setting_title(setting) if grid == "all" else partition_title(setting.partition)
        fields = {"dataset": setting.dataset, "partition": setting.partition, "participation": setting.participation}
        panels.append(cls(**fields, title=f"{prefix}{title}" if prefix else None))
    return tuple(panels)


def most_side_by_side(panels: int, columns: int = 4) -> int:
    """How many panels are drawn side by side: all, or three if there are more than `columns`."""
    return panels if panels <= columns else 3


def new_figure(width: float, height: float, notes: Sequence[str] = ()) -> tuple[Figure, Body]:
    """A figure outside of pyplot's global state, and the body to draw in; notes are printed in small type below it.

    `height` is the body's height. Notes have a strip below it, because a legend "outside" of panels would cover them.
    """
    lines = [line for note in notes for line in textwrap.wrap(note, width=int(width * 19))]
    strip = 0.13 * len(lines) + 0.06 * bool(lines)
    figure = Figure(figsize=(width, height + strip), layout="constrained")
    FigureCanvasAgg(figure)
    if not lines:
        return figure, figure
    body, foot = np.ravel(figure.subfigures(2, 1, squeeze=False, height_ratios=(height, strip)))
    foot.text(0.01, 0.95, "\n".join(lines), fontsize=7, color="#444444", va="top", linespacing=1.2)
    return figure, body


def draw_curve(
    axes: Axes,
    x: pd.Series,
    mean: pd.Series,
    std: pd.Series,
    look: Style,
    within: tuple[float, float] = (-np.inf, np.inf),
    offset: float = 0.0,
    *,
    band: bool = True,
) -> None:
    """A mean line with a `band` of ± one standard deviation, if there is one, cut to the possible values `within`.

    A single point has neither line nor band: it is drawn as a small marker with a bar, shifted by `offset` on the x
    axis, so that it hides no other point.
    """
    if x.empty:
        return
    low, high = (mean - std).clip(*within), (mean + std).clip(*within)
    if len(x) == 1:
        axes.plot(x + offset, mean, **{**_line(look), "marker": look.marker or "_", "markersize": 6})
        axes.vlines(x + offset, low, high, color=look.colour, linewidth=0.8)
        # Equal space on the other side of x keeps its tick in the middle of the axis.
        axes.update_datalim([(x.iloc[0] - offset, mean.iloc[0])])
        return
    line = _line(look)
    if len(x) <= _FEW_POINTS:
        axes.plot(x, mean, **{**line, "marker": look.marker or "."})
    else:
        axes.plot(x, mean, markevery=0.1, **line)
    if not band:
        return
    # Thin edges distinguish many overlapping bands, and pale areas leave the lines readable.
    axes.fill_between(x, low, high, facecolor=(look.colour, 0.06), edgecolor=(look.colour, 0.25), linewidth=0.4)


def whole_numbers(axis: Axis) -> None:
    """Whole numbers on an axis, such as that of rounds, for any length."""
    axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def plain_numbers(axis: Axis, low: float, high: float, decades: int = 2) -> None:
    """Plain numbers on a logarithmic axis from `low` to `high`: 20, 30, 50; 1, 2, 5, 10; or 1, 10, 100 if it has
    more than these `decades`.

    An axis that is short, such as from 1 to 2, has equal steps. Numbers are so far apart that they can be read below a
    third of a page's width.
    """
    subs = (1, 2, 3, 5) if high < 10 * low else (1, 2, 5) if high < 10**decades * low else (1,)
    axis.set_major_locator(
        MaxNLocator(4, steps=[1, 2, 5, 10], min_n_ticks=3) if high < 3 * low else LogLocator(subs=subs)
    )
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.set_minor_locator(NullLocator())


def _line(look: Style) -> dict[str, Any]:
    line = {"color": look.colour, "linestyle": look.dashes, "marker": look.marker, "markersize": 3}
    return {**line, "zorder": 3, "linewidth": 1.8} if look.on_top else line


def add_legend(body: Body, frame: pd.DataFrame, layout: FigureLayout, experiment: Experiment) -> None:
    """One legend below all panels, of the methods that have data."""
    names, present = method_titles(experiment, layout.methods), set(frame["method"])
    looks = styles(experiment, layout.methods)
    draw_legend(body, {names[label]: look for label, look in looks.items() if label in present}, layout.width)


def draw_legend(body: Body, looks: Mapping[str, Style], width: float) -> None:
    """One legend below all panels, of lines by their title; `width` in inches."""
    handles = [Line2D([], [], label=title, **_line(look)) for title, look in looks.items()]
    body.legend(handles=handles, loc="outside lower center", ncols=legend_columns(list(looks), width), **LEGEND)


def legend_columns(labels: Sequence[str], width: float) -> int:
    """The number of columns, at most six, with which labels fit into `width` inches in the fewest rows.

    Labels fill one column after the other. Of several such numbers, the smallest gives rows of equal length.
    """
    size, font = STYLE["legend.fontsize"], FontProperties(family=STYLE["font.sans-serif"])
    lengths = [TextPath((0, 0), label, size=size, prop=font).get_extents().width for label in labels]
    pad, edges = 0.8, 1.3  # in type sizes: before each label, and on both sides of the legend

    def fits(columns: int) -> bool:
        widest = [max(part) for part in np.array_split(lengths, columns)]
        spaces = columns * (LEGEND["handlelength"] + pad) + (columns - 1) * LEGEND["columnspacing"] + edges
        return columns == 1 or sum(widest) + spaces * size <= 72 * width

    fitting = [columns for columns in range(1, min(6, len(labels)) + 1) if fits(columns)]
    return min(fitting, key=lambda columns: (-(-len(labels) // columns), columns), default=1)


def means_and_deviations(frame: pd.DataFrame, means: str, deviations: str = f"bands: {DEVIATION}") -> str:
    """A sentence for captions: which marks are means over seeds, and which show deviations, if cells have several."""
    seeds = count_seeds(frame)
    if seeds == "1 seed":
        return f"{means}: {seeds}."
    return f"{means}: mean over {'; '.join(part for part in (seeds, deviations) if part)}."


def count_seeds(frame: pd.DataFrame) -> str:
    """The number of seeds in words, such as '3 seeds', or '1 to 3 seeds' if cells lack some."""
    counts = frame.groupby(IDS)["seed"].nunique()
    fewest, most = counts.min(), counts.max()
    return f"{most if fewest == most else f'{fewest} to {most}'} seed{'' if most == 1 else 's'}"
