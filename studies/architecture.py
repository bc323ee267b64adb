"""The drawing of docs/architecture.md: the rooms of the house, from their imports and their first lines.

`python -m studies.architecture` draws it again.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import fill
from typing import Self

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from fedflat.analysis.figures.base import figure_style
from fedflat.bench.input.content import short_hash
from studies.command import run
from studies.imports import ROOMS, imports, modules, room
from studies.pictures import save_picture
from studies.places import DOCS

PICTURE = DOCS / "images" / "architecture.png"
PIXELS = 1000

WAY = ("fedflat.bench.experiments", "fedflat.bench.training", "fedflat.bench.engine", "fedflat.analysis.analyses",
       "fedflat.analysis.tables", "fedflat.analysis.report")  # fmt: skip
"""The way of a run, in its order: its rooms have numbers in the drawing."""

_COLOURS = {"fedflat.bench": "#dbe9f6", "fedflat.analysis": "#e2f0d9", "fedflat": "#fde9d0"}
_WIDTH, _ROW, _BOX = 10.0, 0.8, 0.58


@dataclass(frozen=True)
class House:
    """The rooms that are installed: what each is for, and the rooms below it on which it stands directly.

    A room stands directly on another one if it imports it, and if no third room is between the two.
    """

    about: Mapping[str, str]
    below: Mapping[str, tuple[str, ...]]

    @classmethod
    def built(cls) -> Self:
        """From the files."""
        shown = ROOMS[: ROOMS.index("studies")]
        used: dict[str, set[str]] = {one: set() for one in shown}
        for module in modules():
            if (own := room(module)) in used:
                others = {room(name) for name in imports(module) if name not in ("fedflat.bench", "fedflat.analysis")}
                used[own] |= {other for other in others if other in used and other != own}
        reached: dict[str, set[str]] = {}
        for one in shown:  # from the lowest
            reached[one] = {far for near in used[one] for far in reached.get(near, set())}
            used[one] -= reached[one]
            reached[one] |= used[one]
        about = {one: _first_line(one) for one in shown}
        return cls(about, {one: tuple(sorted(used[one], key=ROOMS.index)) for one in shown})

    @property
    def floors(self) -> list[list[str]]:
        """The rooms by the number of rooms that are on top of each other below them."""
        floor: dict[str, int] = {}
        for one, below in self.below.items():
            floor[one] = 1 + max((floor[other] for other in below), default=-1)
        return [[one for one in floor if floor[one] == number] for number in range(1 + max(floor.values()))]

    @property
    def fingerprint(self) -> str:
        """A hash of what the drawing shows."""
        return short_hash(f"{sorted(self.about.items())} {sorted(self.below.items())} {WAY}")


def _first_line(package: str) -> str:
    text = ast.get_docstring(ast.parse(modules()[package].read_bytes())) or ""
    return text.splitlines()[0].partition(". ")[0].rstrip(".")


def draw(house: House) -> Figure:
    """The rooms by floor, with lines to those on which they stand."""
    floors = house.floors
    places = {
        one: (_WIDTH * (number + 0.5) / len(floor), _ROW * height)
        for height, floor in enumerate(floors)
        for number, one in enumerate(floor)
    }
    with figure_style():
        figure = Figure(figsize=(_WIDTH, _ROW * len(floors)))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, _WIDTH), ylim=(-0.5 * _ROW, _ROW * (len(floors) - 0.5)))
        axes.axis("off")
        for one, below in house.below.items():
            for other in below:
                (x, y), (u, v) = places[one], places[other]
                axes.plot([x, u], [y - _BOX / 2, v + _BOX / 2], color="#8a8a8a", linewidth=1, zorder=1)
        for floor in floors:
            width = min(4.8, _WIDTH / len(floor) - 0.12)
            for one in floor:
                _draw_room(axes, one, house.about[one], places[one], width)
    return figure


def _draw_room(axes: Axes, room: str, about: str, place: tuple[float, float], width: float) -> None:
    (x, y), (package, _, name) = place, room.rpartition(".")
    corner = (x - width / 2, y - _BOX / 2)
    box = FancyBboxPatch(corner, width, _BOX, "round,pad=0,rounding_size=0.06", linewidth=0.8, zorder=2)
    box.set(facecolor=_COLOURS[package or room], edgecolor="#8a8a8a")
    axes.add_patch(box)
    number = f"{WAY.index(room) + 1}  " if room in WAY else ""
    title = f"{number}{room.removeprefix('fedflat.').replace('.', '/') if package else name}"
    axes.text(x, y + 0.17, title, ha="center", va="center", fontsize=10, fontweight="bold", zorder=3)
    axes.text(x, y - 0.11, fill(about, round(16.5 * width)), ha="center", va="center", fontsize=8, zorder=3)


def main() -> None:
    """Draw the picture."""
    house = House.built()
    save_picture(draw(house), PICTURE, PIXELS, house.fingerprint)


if __name__ == "__main__":
    run(main)
