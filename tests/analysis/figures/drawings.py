"""What tests of figures share: how to draw one, and what can be read in it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.figures.draw import KINDS
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.bench.experiments.address import Setting
from tests.analysis.conftest import words

_PLACE = re.compile(r"\{[A-Za-z_]")
EASY = Setting("digits", "dirichlet-0.6", "4-of-20")


def drawn(name: str, tidy: Tidy) -> Figure:
    return figures.draw(figures.load_figure("quick", name), tidy)


def check_type(figure: Figure, caption: Caption) -> None:
    """All text is large enough to be read, and none shows the name of a value in place of the value."""
    for text in figure.findobj(lambda artist: hasattr(artist, "get_fontsize") and artist.get_text()):
        assert text.get_fontsize() >= 7, text
        assert not _PLACE.search(re.sub(r"\$[^$]*\$", "", text.get_text())), text
    assert not _PLACE.search(words(caption)), caption


def check_bytes_repeat(draw: Callable[[], Figure], folder: Path) -> None:
    """Drawn and saved twice, in both formats."""
    first, second = (figures.save(draw(), folder / str(turn) / "figure") for turn in range(2))
    assert [file.suffix for file in first] == [".png", ".pdf"]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]
    assert b"CreationDate" not in first[1].read_bytes()


def panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.get_axes() if axes.get_label() != "<colorbar>" and axes.get_visible()]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for part in [figure, *figure.subfigs] for text in part.texts]


def legend(figure: Figure) -> list[str]:
    (found,) = [one for part in [figure, *figure.subfigs] for one in part.legends]
    return [text.get_text() for text in found.get_texts()]


def lines(axes: Axes) -> list[tuple[Any, Any]]:
    return [(line.get_xdata(), line.get_ydata()) for line in axes.lines if len(line.get_xdata()) > 1]


def drift(rounds: dict[int, tuple[list[float], list[float]]]) -> pd.DataFrame:
    """Drift and sharpness of every seed, by round."""
    rows = [(s, r, *pair) for r, values in rounds.items() for s, pair in enumerate(zip(*values, strict=True))]
    table = pd.DataFrame(rows, columns=["seed", "round", "perturbation_drift", "sharpness"])
    return table.assign(cosine=0.0, local_norm=0.1, gradient_norm=1.0)


def foot(figure: Figure) -> str:
    """All texts below the figure, in one line."""
    return " ".join(" ".join(texts(figure)).split())


def single(realistic: Tidy, kind: str, **fields: Any) -> Figure:
    """A figure of one panel, of four methods."""
    where = {"partition": "dirichlet-0.1", "participation": "4-of-20"}
    given = {"title": "t", "caption": "c", "methods": ["fedavg", "fedsam", "fedlesam", "fedgf"], **fields}
    layout = KINDS[kind].parse({"kind": kind, **({"panels": [where]} if kind != "drift" else {}), **given})
    return figures.draw(layout, realistic)
