"""Draw, caption and save figures; the kinds of figures register themselves."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from fedflat.analysis.analyses import ANALYSES
from fedflat.analysis.figures.base import STYLE, FigureLayout, figure_style
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.layouts.captions import (
    Caption,
    computed_by_other_code,
    computed_in_bf16,
    less_exact,
    other_training_settings,
    smoke_scale,
    tuned_values,
)
from fedflat.analysis.layouts.layout import layout_content, load_layout
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.layouts.titles import method_titles
from fedflat.bench.data.sources.base import Source
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.results import IMAGES
from fedflat.bench.files.atomic import replacing
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.registry import registered

KINDS: Mapping[str, type[FigureLayout]] = registered(FigureLayout, "fedflat.analysis.figures.kinds", key="kind")
"""The layouts of figures by kind. A new file with a class in that folder is a new kind."""


def load_figure(
    experiment_name: str, name: str, experiment: Experiment | None = None, part: str | None = None
) -> FigureLayout:
    """A figure's layout, validated and fitted to its experiment (None: as its file says), or to one of its parts."""
    return load_layout(KINDS, experiment_name, "figures", name, experiment, part)


def shows_main_setting(experiment_name: str, name: str) -> bool:
    """Whether a figure shows one setting, which its layout leaves open; its experiment is not read."""
    content = layout_content(experiment_name, "figures", name)
    kind = KINDS.get(str(content.get("kind")))
    return kind is not None and kind.of_one_setting and "select" not in content


def suits_data(experiment_name: str, name: str, source: Source) -> bool:
    """Whether the analysis that a figure draws can analyse a data set; its experiment is not read."""
    kind = KINDS.get(str(layout_content(experiment_name, "figures", name).get("kind")))
    analysis = None if kind is None else ANALYSES.get(kind.needs)
    return analysis is None or analysis.suits(source)


def draw(layout: FigureLayout, tidy: Tidy) -> Figure:
    """The figure, which names methods without data at its foot; a `UserError` if there are no data at all."""
    frame = _gather(layout, tidy)
    if frame.empty:
        seed = f" of seed {layout.shown_seed(tidy.experiment)}" if layout.shows_one_seed else ""
        what = "partition" if layout.file == "partition" else f"{layout.file}.csv"
        where = f"no {what}{seed} of its cells under '{tidy.results}'"
        raise UserError(f"nothing to draw for '{layout.title}': {where}")
    with figure_style():
        figure = layout.draw(tidy, frame)
        if tidy.experiment.scale != "paper":
            titles = ["Smoke scale: scikit-learn's digits", figure.get_suptitle()]
            figure.suptitle("\n".join(filter(None, titles)), fontsize=STYLE["axes.titlesize"])
        return figure


def caption(layout: FigureLayout, tidy: Tidy) -> Caption:
    """The layout's caption; as notes the meaning of lines and bands, what was computed, and what is missing."""
    frame = _gather(layout, tidy)
    note = missing_note(frame, layout, tidy)
    notes = [
        "" if frame.empty else layout.reported_value(tidy.experiment),
        "" if frame.empty else layout.statistics(frame),
        layout.computed(frame),
        _left_out(layout, tidy.experiment),
        *other_training_settings(tidy.experiment, layout.methods),
        *tuned_values(tidy.experiment, layout.methods),
        *less_exact({layout.file: frame}, tidy.analyses),
        *computed_in_bf16({layout.file: frame}),
        *computed_by_other_code({layout.file: frame}, tidy.analyses, tidy.experiment),
        f"{note[0].upper()}{note[1:]}." if note else "",
    ]
    smoke = smoke_scale(tidy.experiment, layout.cells(tidy.experiment), shortens=layout.spans_rounds)
    return Caption.of(layout.title, layout.caption, notes, smoke=smoke)


def _left_out(layout: FigureLayout, experiment: Experiment) -> str:
    """A sentence that names the methods beyond the largest number that the figure compares; empty if there are none."""
    if layout.most in (None, 1):
        return ""
    hidden = [label for label in experiment.methods if experiment.is_chosen(label) and label not in layout.methods]
    names = method_titles(experiment)
    return f"Methods not shown: {', '.join(names[label] for label in hidden)}." if hidden else ""


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.png and `stem`.pdf; equal figures give equal bytes."""
    files = {extension: stem.with_name(f"{stem.name}.{extension}") for extension in IMAGES}
    with figure_style():
        _settle(figure)
        for extension, file in files.items():
            with replacing(file) as temporary:
                figure.savefig(
                    temporary, format=extension, metadata={"CreationDate": None} if extension == "pdf" else {}
                )
    return list(files.values())


def _settle(figure: Figure) -> None:
    """Fix the layout at rounded positions: the last digits of the layout solver differ from call to call."""
    figure.draw_without_rendering()
    if break_titles(figure):
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for subfigure in figure.subfigs:
        subfigure.bbox_relative.set_points(subfigure.bbox_relative.get_points().round(6))
    for axes in figure.get_axes():
        axes.set_position(Bbox(axes.get_position(original=True).get_points().round(6)))


def break_titles(figure: Figure) -> bool:
    """Break titles that are wider than their panel, and would cover those next to it; whether there are any.

    The figure must have been laid out.
    """
    broken = False
    for axes in figure.get_axes():
        title, room = axes.get_title(), axes.get_window_extent().width
        needed = axes.title.get_window_extent().width if title else 0
        if needed > room:
            longest = max(map(len, title.splitlines()))
            lines = textwrap.wrap(title, max(1, int(longest * room / needed)), break_long_words=False)
            axes.set_title("\n".join(lines))
            broken |= len(lines) > 1
    return broken


def _gather(layout: FigureLayout, tidy: Tidy) -> pd.DataFrame:
    seed = layout.shown_seed(tidy.experiment)
    frame = tidy.gather(layout.file, layout.cells(tidy.experiment), seed, layout.also())
    return frame[frame["seed"] == seed] if layout.shows_one_seed else frame
