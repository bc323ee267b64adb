"""What figures draw of intervals, from their lines, bands, bars and boxes; and the code that draws intervals."""

import ast
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.figures.draw import KINDS
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import load_experiment
from tests.analysis.conftest import HARD, tidy_in, write
from tests.analysis.figures.drawings import EASY
from tests.places import ROOT

CALLS = {
    "errorbar", "fill_between", "fill_betweenx", "hlines", "vlines", "boxplot", "bxp", "violinplot", "axhspan",
    "axvspan", "xerr", "yerr",
}  # fmt: skip
"""Methods of Matplotlib's axes, and parameters, that draw intervals."""

METHODS = ("fedavg", "fedsam")
SEEDS = (1.0, 2.0, 6.0)
"""The value of each seed: skewed, and so few that another divisor is seen."""

T = {3: 4.302653, 4: 3.182446, 8: 2.364624}
"""Student's 97.5 % quantile by the number of values, from a printed table."""

Interval = tuple[float, float]


class Code:
    """The functions of packages by module and name, with what they call; and the modules' imports."""

    def __init__(self, **packages: str) -> None:
        """`packages`: the names under which folders at the top of the repository are imported."""
        files = {
            ".".join([name, *file.relative_to(ROOT / folder).with_suffix("").parts]): file
            for folder, name in packages.items()
            for file in (ROOT / folder).rglob("*.py")
        }
        trees = {module: ast.parse(file.read_text(encoding="utf-8")) for module, file in files.items()}
        self.imports = {
            module: {name.asname or name.name: (node.module, name.name) for node in ast.walk(tree)
                     if isinstance(node, ast.ImportFrom) for name in node.names}
            for module, tree in trees.items()
        }  # fmt: skip
        functions = {
            (module, node.name): set(_called(node))
            for module, tree in trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
        }
        self.direct = {place for place, names in functions.items() if names & CALLS}
        self.drawing, self.used = set(self.direct), set[str]()
        while more := {place for place, names in functions.items() if place not in self.drawing
                       and any(self._is_drawing(place[0], name) for name in names)}:  # fmt: skip
            self.drawing |= more
        makes = {module for (module, _), names in functions.items() if "ReportFigure()" in names}
        makes |= {layout.__module__ for layout in KINDS.values()}
        self.figures = sorted({module for module, _ in self.drawing} & makes)

    def _is_drawing(self, module: str, name: str) -> bool:
        place = self.imports[module].get(name, (module, name))
        if place not in self.drawing:
            return False
        self.used.add(place[0])
        return True


def _called(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            yield from (word.arg for word in node.keywords if word.arg is not None)
            if isinstance(node.func, ast.Name):
                yield f"{node.func.id}()"
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def drawn(figure: Figure) -> list[Interval]:
    """The ends of all bars, boxes and whiskers, and of all bands at each of their places."""
    return [one for axes in figure.get_axes() for one in drawn_in(axes)]


def drawn_in(axes: Axes) -> Iterator[Interval]:
    for part in axes.collections:
        if isinstance(part, LineCollection):
            for ends in filter(len, map(np.asarray, part.get_segments())):
                along = ends[:, 0] if ends[0, 1] == ends[1, 1] else ends[:, 1]
                if np.isfinite(along).all():
                    yield along.min(), along.max()
        elif isinstance(part, PolyCollection):
            corners = part.get_paths()[0].vertices
            for place in np.unique(corners[:, 0]):
                at = corners[corners[:, 0] == place, 1]
                yield at.min(), at.max()
    lines = [line.get_xydata() for line in axes.lines]
    boxes = [line for line in lines if len(line) == 5 and (line[0] == line[-1]).all()]
    whiskers = [line for line in lines if boxes and len(line) == 2 and line[0, 1] == line[1, 1]]
    for line in (*boxes, *whiskers):
        yield line[:, 0].min(), line[:, 0].max()


def deviation(values: Sequence[float]) -> Interval:
    centre, spread = statistics.fmean(values), statistics.stdev(values)
    return centre - spread, centre + spread


def t_interval(values: Sequence[float]) -> Interval:
    centre = statistics.fmean(values)
    half = T[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return centre - half, centre + half


def times(factor: float, values: Iterable[float] = SEEDS) -> list[float]:
    return [factor * value for value in values]


Frame = Callable[[float], pd.DataFrame]
"""A tidy file by the factor of its method and setting."""


def by_seed(names: str, rows: Callable[[int, float], Iterable[tuple[Any, ...]]]) -> Frame:
    """A tidy file from the rows of each seed with its value."""
    columns = ["seed", *names.split()]

    def frame(factor: float) -> pd.DataFrame:
        found = [(seed, *row) for seed, value in enumerate(times(factor)) for row in rows(seed, value)]
        return pd.DataFrame(found, columns=columns)

    return frame


class Figures:
    """Draws a kind of figure from files of two methods in two settings, whose values are 1 and 1.5, and 2 and 3 times
    those of the seeds."""

    FACTORS = {(EASY, "fedavg"): 1.0, (EASY, "fedsam"): 1.5, (HARD, "fedavg"): 2.0, (HARD, "fedsam"): 3.0}  # noqa: RUF012

    def __init__(self, results: Path) -> None:
        self.results = results

    def draw(self, kind: str, file: str, frame: Frame, **fields: Any) -> list[Interval]:
        for (setting, method), factor in self.FACTORS.items():
            write(self.results, CellAddress(setting, method), file, frame(factor))
        layout = KINDS[kind]
        places = [{"partition": one.partition, "participation": one.participation} for one in (EASY, HARD)]
        place = {"panels": places} if "panels" in layout.model_fields else {"select": places[0]}
        given = {"kind": kind, "title": "T", "caption": "C.", "methods": METHODS, **place, **fields}
        tidy: Tidy = tidy_in(self.results, load_experiment("quick"))
        return drawn(figures.draw(layout.parse(given), tidy))

    def all(self, expected: Callable[[float], Iterable[Interval]], *, settings: int = 2) -> list[Interval]:
        factors = list(self.FACTORS.values())[: 2 * settings]
        return [one for factor in factors for one in expected(factor)]


Case = Callable[[Figures], Iterator[tuple[Iterable[Interval], Iterable[Interval]]]]
"""What a figure draws, and what it must draw."""


def agree(found: Iterable[Interval], expected: Iterable[Interval]) -> None:
    both = [np.array(sorted(np.round(list(one), 9).tolist())) for one in (found, expected)]
    np.testing.assert_allclose(*both, rtol=1e-5, atol=1e-8)
