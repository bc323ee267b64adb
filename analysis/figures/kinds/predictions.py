"""Test images with label maps, and the classes that each method predicts for their pixels."""

from collections.abc import Iterable
from typing import ClassVar, Literal, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from pydantic import Field, model_validator

from fedflat.analysis.analyses.training.predictions import Pixels, pixels
from fedflat.analysis.figures.base import LEGEND, OneSeedLayout, OneSettingLayout, legend_columns, new_figure
from fedflat.analysis.figures.notes import missing_note
from fedflat.analysis.layouts.layout import Selection
from fedflat.analysis.layouts.tidy import Tidy, of_cell
from fedflat.analysis.layouts.titles import method_titles, trained_data
from fedflat.analysis.measures.convergence import FinalValue
from fedflat.bench.data.label_maps import UNLABELLED
from fedflat.bench.data.sources.base import Source
from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.input.errors import UserError, unknown

_DARK, _LIGHT = matplotlib.colormaps["tab20"].colors[::2], matplotlib.colormaps["tab20"].colors[1::2]  # type: ignore[attr-defined]
_GREY = 7
"""The place of the greys in both: grey stands for pixels without a class."""

_MORE = matplotlib.colormaps["tab20b"].colors  # type: ignore[attr-defined]
_COLOURS = [*(colour for part in (_DARK, _LIGHT) for colour in (*part[:_GREY], *part[_GREY + 1 :])), *_MORE]
PALETTE = np.resize(np.rint(255 * np.array(_COLOURS)).astype(np.uint8), (UNLABELLED + 1, 3))
"""The colour of each class `[256, 3]`; light grey for pixels without one."""
PALETTE[UNLABELLED] = np.rint(255 * np.array(to_rgb("#dddddd")))

_WIDEST, _BESIDE = 1.3, 0.25
"""Inches: the widest image, and the room for the names of the parts."""


class _Column(NamedTuple):
    title: str
    images: list[Pixels]


class PredictionsLayout(OneSeedLayout, OneSettingLayout):
    """One row per image: the image, its labels, and a column for the predictions of each method, with its mean IoU on
    all test images."""

    needs: ClassVar[str] = "predictions"
    page_order: ClassVar[int] = 18
    kind: Literal["predictions"] = "predictions"
    select_by_method: dict[str, Selection] = Field(
        default={},
        description="by method, the fields of its setting that differ from `select`: another part of the experiment "
        "with the same test images",
    )

    @model_validator(mode="after")
    def _known_methods(self) -> "PredictionsLayout":
        for method in self.select_by_method:
            if method not in self.methods:
                raise unknown("method in select_by_method", method, self.methods)
        return self

    def settings(self, experiment: Experiment) -> tuple[Setting, ...]:
        """That of `select`, and those of `select_by_method`."""
        others = (self._cell(method, experiment).setting for method in self.methods)
        return tuple(dict.fromkeys([*super().settings(experiment), *others]))

    def cells(self, experiment: Experiment) -> tuple[CellAddress, ...]:
        """See `Layout`: each method in its own setting."""
        own = {self._cell(method, experiment) for method in self.methods}
        return tuple(cell for cell in super().cells(experiment) if cell in own)

    def _cell(self, method: str, experiment: Experiment) -> CellAddress:
        selection = self.select.narrowed(self.select_by_method.get(method, Selection()))
        return CellAddress(selection.setting(experiment), method)

    def statistics(self, frame: pd.DataFrame) -> str:
        """The meaning of colours and percentages, and the seed."""
        return (
            "One colour for each class, in labels and predictions; grey: no label. Percentages: mean IoU on all test "
            f"images, {FinalValue().description}. Runs of seed {frame['seed'].iloc[0]}."
        )

    def draw(self, tidy: Tidy, frame: pd.DataFrame) -> Figure:
        """The figure, with a legend of the classes that occur."""
        setting, *_ = self.settings(tidy.experiment)
        names, cells = method_titles(tidy.experiment), {one: self._cell(one, tidy.experiment) for one in self.methods}
        tables = {one: rows for one, cell in cells.items() if not (rows := of_cell(frame, cell)).empty}
        first = next(iter(tables.values()))
        for method, rows in tables.items():
            if list(rows["picture"]) != list(first["picture"]):
                raise UserError(
                    f"the images of {cells[method].path} are not those of {cells[next(iter(tables))].path} (allowed: "
                    "settings with the same test images, and the same options of the analysis)"
                )
        pictures = _Column("Image", _images(first["picture"]))
        maps = [_Column("Labels", _images(first["labels"]))]
        for method, rows in tables.items():
            miou = self._miou(tidy, cells[method])
            maps.append(_Column(f"{names[method]}\n{miou:.1f} %", _images(rows["predicted"])))
        legend = _legend(maps, trained_data(tidy.experiment.resolved_parts[setting.dataset]))
        columns = [pictures, *(_Column(title, [PALETTE[image] for image in shown]) for title, shown in maps)]

        high, wide, _ = pictures.images[0].shape
        side = min((self.width - _BESIDE) / len(columns), _WIDEST)
        width = max(_BESIDE + side * len(columns), self.width / 2)
        across = legend_columns([str(patch.get_label()) for patch in legend], width)
        height = len(first) * (side * high / wide + 0.05) + 0.4 + 0.16 * -(-len(legend) // across)
        figure, body = new_figure(width, height, [missing_note(frame, self, tidy)])
        grid = body.subplots(len(first), len(columns), squeeze=False)
        for line, (title, shown) in zip(grid.T, columns, strict=True):
            line[0].set_title(title)
            for axes, image in zip(line, shown, strict=True):
                axes.imshow(image, interpolation="nearest")
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set_visible(False)
                axes.grid(False)
        for axes, part in zip(grid[:, 0], first["part"].fillna(""), strict=True):
            axes.set_ylabel(str(part).capitalize())
        body.legend(handles=legend, loc="outside lower center", ncols=across, **{**LEGEND, "handlelength": 1.5})
        return figure

    def _miou(self, tidy: Tidy, cell: CellAddress) -> float:
        """The mean IoU in percent after the last round of the run that is shown."""
        metrics = tidy.gather("metrics", [cell])
        evaluations = metrics.loc[metrics["seed"] == self.shown_seed(tidy.experiment), "test_miou"].dropna()
        return FinalValue().of(evaluations, "higher")


def _images(files: Iterable[bytes]) -> list[Pixels]:
    return list(map(pixels, files))


def _legend(maps: Iterable[_Column], source: Source) -> list[Patch]:
    """The colours and names of the classes that occur, in their order; pixels without a class are the last."""
    found = sorted({int(number) for column in maps for image in column.images for number in np.unique(image)})
    names = {number: f"class {number}" for number in found} | dict(enumerate(source.class_names))
    names[UNLABELLED] = "no label"
    return [Patch(color=PALETTE[number] / 255, label=names[number]) for number in found]
