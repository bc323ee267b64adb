"""The pages of the grids that the repository stores show what is stored."""

import pytest

from studies.benchmark import DOCS, PARTS, page_of, parts, pictures_of
from studies.marked_text import marks, part
from studies.part import shown
from studies.pictures import shown_by
from tests.places import ROOT
from tests.tiers import case

BASELINES = ROOT / "results" / "baselines"
GRIDS = ["bench1d", "flat1d"]
"""Grids with pages; the page of a search that goes on shows what is stored so far."""


SHOWN = [
    case(grid, name, quick=name != "study")  # a bootstrap over all runs
    for grid in GRIDS
    for name in parts(grid)
]


@pytest.mark.long
@pytest.mark.parametrize(("grid", "name"), SHOWN)
def test_a_part_of_a_page_shows_the_stored_runs(grid: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where the stored results are
    again = f"python -m studies.benchmark {grid}"
    made = PARTS[name](grid)
    assert part(page_of(grid), name) == made.markdown(pictures_of(grid)), again
    for figure in made.figures:
        assert shown_by(DOCS / pictures_of(grid) / f"{figure.name}.png") == shown(figure), again


@pytest.mark.parametrize("grid", GRIDS)
def test_a_page_shows_each_of_its_pictures(grid: str) -> None:
    """A part whose figures are not drawn any more would leave their pictures behind."""
    text = page_of(grid).read_text(encoding="utf-8")
    stored = [f"]({pictures_of(grid)}/{file.name})" for file in (DOCS / pictures_of(grid)).glob("*.png")]
    assert sum(text.count(link) for link in stored) == len(stored) == text.count(f"]({pictures_of(grid)}/")


@pytest.mark.parametrize("grid", GRIDS)
def test_a_page_has_known_parts(grid: str) -> None:
    text = page_of(grid).read_text(encoding="utf-8")
    assert {line for line in text.splitlines() if line.startswith("<!--")} <= {
        mark for name in PARTS for mark in marks(name)
    }


def test_each_stored_grid_with_a_page_is_tested() -> None:
    assert {folder.name for folder in BASELINES.iterdir() if page_of(folder.name).is_file()} <= set(GRIDS)
