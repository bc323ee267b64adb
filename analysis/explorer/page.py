"""The interactive page, made from frames: the run table, the curve table, and perhaps loss surfaces and a verdict."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from markdown_it import MarkdownIt
from scipy.stats import t as student

from fedflat.analysis.explorer.compact import compact_columns, compact_curves, compact_surfaces
from fedflat.analysis.explorer.looks import web_look
from fedflat.analysis.figures.palette import Style
from fedflat.analysis.layouts.run_columns import ANALYSED, further_metrics, run_quantity
from fedflat.analysis.layouts.titles import setting_title
from fedflat.bench.experiments.address import IDS, Setting
from fedflat.bench.metrics import METRICS
from fedflat.bench.metrics.base import Metric

_FOLDER = Path(__file__).parent
ASSETS, PLOTLY = _FOLDER / "assets", _FOLDER / "plotly" / "plotly-gl3d.min.js"

SCRIPTS = (
    "statistics.js", "data.js", "state.js", "marks.js", "controls.js", "details.js", "leaderboard.js", "charts.js",
    "curves.js", "budget.js", "scatter.js", "surfaces.js", "downloads.js", "main.js",
)  # fmt: skip
"""The page's own scripts, in their order: they share one module."""

_MOST_SEEDS = 100


@dataclass(frozen=True)
class Explorer:
    """What the page shows.

    `runs`, `curves`: the frames of `run_table` and `curve_table`; if runs have the column `experiment`, the page shows
    the command that trains them. `looks`: the style of each method, by label. `reported`: which value of a run is its
    test accuracy, in words. `surfaces`: rows of the analysis surface, with the columns `name` (of the analysis),
    `variant` and those that name a run. `own`: the label of a method to highlight. `verdict`: Markdown at the top of
    the page. `links`: further pages, by title.
    """

    title: str
    description: str
    runs: pd.DataFrame
    curves: pd.DataFrame
    looks: Mapping[str, Style]
    reported: str
    surfaces: pd.DataFrame | None = None
    own: str | None = None
    verdict: str = ""
    links: Mapping[str, str] = field(default_factory=dict)

    def page(self) -> str:
        """The whole page: one file that needs no other."""
        data = self.data()
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(ASSETS), autoescape=True, undefined=jinja2.StrictUndefined
        )
        return environment.get_template("page.html.j2").render(
            title=self.title,
            description=self.description,
            links=self.links,
            verdict=MarkdownIt("commonmark", {"html": False}).enable("table").render(self.verdict),
            reported=self.reported,
            score=data["score"],
            in_text=" or ".join(metric.title for metric in _metrics(data["scores"])),
            has_flatness=bool(data["flatness"]),
            has_surfaces=bool(data["surfaces"]),
            step=data["curves"]["step"],
            style=_text("page.css"),
            plotly=PLOTLY.read_text(encoding="utf-8"),
            data=for_script(data),
            scripts="\n".join(map(_text, SCRIPTS)),
        )

    def data(self) -> dict[str, Any]:
        """The data of the page."""
        methods = self.runs.drop_duplicates("method").set_index("method")["title"]
        settings = self.runs[IDS[:3]].drop_duplicates().itertuples(index=False, name=None)
        return {
            "title": self.title,
            "own": self.own,
            "scores": (scores := _scores(self.runs)),
            "score": " or ".join(metric.heading() for metric in _metrics(scores)),
            "names": {
                column: found.axis
                for column in dict.fromkeys([*map(str, self.runs), *map(str, self.curves)])
                if (found := run_quantity(column)) is not None
            },
            "metrics": [name for name in further_metrics(self.curves) if name not in scores.values()],
            "methods": {
                label: {"title": title, **web_look(self.looks[str(label)])} for label, title in methods.items()
            },
            "flatness": [name for name in ANALYSED if name in self.runs and self.runs[name].notna().any()],
            "settings": _setting_titles([Setting(*setting) for setting in settings]),
            "quantiles": [round(float(student.ppf(0.975, df)), 4) for df in range(1, _MOST_SEEDS)],
            "runs": {"count": len(self.runs), "columns": compact_columns(self.runs)},
            "curves": compact_curves(self.runs, self.curves),
            "surfaces": [] if self.surfaces is None else compact_surfaces(self.surfaces),
        }


def _scores(runs: pd.DataFrame) -> dict[str, str]:
    """The column by which models are judged in each setting, by its path: the mean IoU if a run has one."""
    values = runs.get("test_miou", pd.Series(np.nan, index=runs.index))
    counts = values.groupby([runs[name] for name in IDS[:3]], sort=False).count()
    found = zip(counts.index, counts > 0, strict=True)
    return {Setting(*place).path: "test_miou" if has_miou else "test_accuracy" for place, has_miou in found}


def _metrics(scores: Mapping[str, str]) -> list[type[Metric]]:
    """The metrics by which models are judged."""
    return [METRICS[column.removeprefix("test_")] for column in dict.fromkeys(scores.values())]


def for_script(content: Any) -> str:
    """JSON for a script element: no text in it can end the element."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _setting_titles(settings: list[Setting]) -> dict[str, str]:
    """The name of each setting by its path, with the data set where there are several."""
    several = len({setting.dataset for setting in settings}) > 1
    return {
        setting.path: f"{setting.dataset}: {setting_title(setting)}" if several else setting_title(setting)
        for setting in settings
    }


def _text(asset: str) -> str:
    return (ASSETS / asset).read_text(encoding="utf-8")
