"""The figure of the screening: a heat map for each perturbation, with the score of each correction and server."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from fedflat.analysis.comparison.report_pages import ReportFigure
from fedflat.analysis.figures.base import figure_style, new_figure
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.titles import setting_title
from fedflat.bench.experiments.address import IDS, Setting
from studies.compositions.evaluation import CompositionResults
from studies.compositions.triples import NEUTRAL

_WIDE = 4.5
_CELL = 0.135
"""Height of a cell in inches."""
_COLOURS = "viridis"
_PUBLISHED = "#D55E00"
_EDGE: dict[str, Any] = {"markeredgecolor": "black", "markeredgewidth": 0.4}


def draw(evaluation: CompositionResults, width: float) -> ReportFigure:
    """Panels by perturbation: corrections × servers; published triples are framed, the best unpublished ones dotted."""
    frame = evaluation.screening.rows
    names = {slot: _ordered(frame[slot], neutral) for slot, neutral in NEUTRAL._asdict().items()}
    columns = 4 if width >= _WIDE else 2
    lines = -(-len(names["perturbation"]) // columns)
    norm = Normalize(frame["score"].min(), frame["score"].max())
    chosen = [tuple(triple) for triple in evaluation.chosen]
    with figure_style():
        figure, body = new_figure(width, lines * (_CELL * len(names["correction"]) + 0.3) + 0.9)
        grid = body.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for axes, perturbation in zip(grid.flat, names["perturbation"], strict=False):
            panel = frame[frame["perturbation"] == perturbation]
            wide = panel.pivot(index="correction", columns="server", values="score")
            _draw_panel(axes, wide.reindex(index=names["correction"], columns=names["server"]), norm)
            axes.set_title(perturbation)
            for row in panel.to_dict("records"):
                x, y = names["server"].index(row["server"]), names["correction"].index(row["correction"])
                if row["published"]:
                    axes.add_patch(Rectangle((x, y), 1, 1, fill=False, color=_PUBLISHED, linewidth=1.3, clip_on=False))
                if (perturbation, row["correction"], row["server"]) in chosen:
                    axes.plot(x + 0.84, y + 0.2, "o", color="white", markersize=2.6, **_EDGE)
                if np.isnan(row["score"]):
                    axes.text(x + 0.5, y + 0.5, "×", ha="center", va="center", fontsize=6)
        for axes in grid.flat[len(names["perturbation"]) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel("correction", fontsize=6)
        for axes in grid[-1]:
            axes.set_xlabel("server", fontsize=6)
        bar = body.colorbar(ScalarMappable(norm, _COLOURS), ax=list(grid.flat), aspect=35, pad=0.01)
        bar.set_label("Validation accuracy (%)")
        bar.outline.set_visible(False)
    return ReportFigure("screening", _caption(evaluation), frame, figure)


def _draw_panel(axes: Axes, wide: pd.DataFrame, norm: Normalize) -> None:
    """Cells with their scores. (seaborn's heat map draws the whole figure once for each panel.)"""
    values = wide.to_numpy(float)
    mesh = axes.pcolormesh(values, cmap=_COLOURS, norm=norm, edgecolors="white", linewidth=0.4)
    for (y, x), score in np.ndenumerate(values):
        if np.isfinite(score):
            dark = np.mean(mesh.cmap(norm(score))[:3]) < 0.5
            axes.text(
                x + 0.5, y + 0.5, f"{score:.0f}", ha="center", va="center_baseline", fontsize=4.5,
                color="white" if dark else "black", in_layout=False,
            )  # fmt: skip
    axes.set_xticks(np.arange(len(wide.columns)) + 0.5, wide.columns, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(np.arange(len(wide)) + 0.5, wide.index)
    axes.set_ylim(len(wide), 0)
    axes.grid(visible=False)
    axes.tick_params(length=0, labelsize=5.5)
    axes.spines[:].set_visible(False)


def _ordered(names: pd.Series, neutral: str) -> list[str]:
    """The names of components, FedAvg's first."""
    return sorted(set(names), key=lambda name: (name != neutral, name))


def _caption(evaluation: CompositionResults) -> Caption:
    rows, budget = evaluation.screening.rows, evaluation.screening.budget
    setting = setting_title(Setting(*map(str, rows[IDS[:3]].iloc[0])))
    return Caption.of(
        f"Screening of all compositions on {evaluation.grid}",
        f"Validation accuracy (%) of the best of {budget['trials']} trials for each perturbation (panels), correction "
        f"(rows) and server (columns): {setting}.",
        [
            f"Trials were compared after the rounds {budget['rungs'].replace('/', ', ')}; the score is the "
            f"{budget['judged']}, on {budget['validation']:.0%} of the training data, with "
            f"seed {budget['seed']}.",
            "Orange frames: triples that a paper has published. Dots: the best unpublished triples.",
            "White: the server needs a state that the correction does not store. ×: all trials failed.",
        ],
    )
