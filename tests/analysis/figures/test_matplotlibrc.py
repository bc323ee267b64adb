"""Figures do not depend on a matplotlibrc of the user or of the current folder."""

import ast
import os

import matplotlib
import pytest

from fedflat.analysis.figures.base import STYLE, figure_style
from tests.commands import run
from tests.places import ROOT

STRANGE = """
lines.color: red
lines.linestyle: --
axes.prop_cycle: cycler('color', ['r'])
axes.facecolor: yellow
font.family: serif
path.sketch: 1, 100, 2
text.usetex: True
savefig.dpi: 7
figure.facecolor: black
xtick.direction: in
"""
DRAWS = """
import sys
from pathlib import Path
from fedflat.analysis.figures.base import draw_curve, figure_style, new_figure
from fedflat.analysis.figures.draw import save
from fedflat.analysis.figures.palette import Style
import pandas as pd

with figure_style():
    figure, body = new_figure(3, 2, ["a note"])
    axes = body.subplots()
    x = pd.Series(range(5), dtype=float)
    axes.plot(x, x ** 2, label="a line")
    axes.set_title("a title")
    axes.legend()
save(figure, Path(sys.argv[1]))
"""


@pytest.mark.parametrize("place", ["current folder", "home folder"])
def test_the_same_bytes_with_any_matplotlibrc(place, tmp_path):
    """Those of matplotlib's defaults; `text.usetex` would need LaTeX."""
    (tmp_path / "draw.py").write_text(DRAWS, encoding="utf-8")
    config = tmp_path / "config"
    drawn = []
    for content in ("", STRANGE):
        folder = tmp_path / ("strange" if content else "plain")
        folder.mkdir()
        config.mkdir(exist_ok=True)
        (folder if place == "current folder" else config).joinpath("matplotlibrc").write_text(content, encoding="utf-8")
        done = run(
            ["python", str(tmp_path / "draw.py"), "figure"],
            cwd=folder,
            env={**os.environ, "MPLCONFIGDIR": str(config)},
        )
        assert done.returncode == 0, done
        drawn.append([(folder / f"figure.{kind}").read_bytes() for kind in ("png", "pdf")])
    assert drawn[0] == drawn[1]


def test_the_style_is_over_the_defaults_and_ends_with_the_block():
    with matplotlib.rc_context({"lines.color": "red", "text.usetex": True}):
        with figure_style({"axes.grid": False}):
            assert matplotlib.rcParams["lines.color"] == matplotlib.rcParamsDefault["lines.color"]
            assert not matplotlib.rcParams["text.usetex"]
            assert matplotlib.rcParams["font.size"] == STYLE["font.size"]
            assert not matplotlib.rcParams["axes.grid"]
        assert matplotlib.rcParams["lines.color"] == "red"


def test_figures_have_this_style_everywhere():
    """No other place sets matplotlib's parameters, and every file that makes or saves a figure uses the style."""
    for file in sorted((ROOT / "analysis").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        called = {
            getattr(node.func, "attr", getattr(node.func, "id", ""))
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call)
        }
        assert file == ROOT / "analysis/figures/base.py" or not called & {"rc_context", "rcdefaults", "use"}, file
        if "savefig" in called:
            assert "figure_style" in called, file
