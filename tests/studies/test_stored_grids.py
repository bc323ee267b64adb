"""The pages of the grids that the repository stores show what is stored."""

import pytest

from studies.benchmark import PARTS, pages, parts
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
    for page in pages(grid).with_part(name):
        assert part(page, name) == made.markdown(pages(grid).pictures_of(page)), again
    for figure in made.figures:
        assert shown_by(pages(grid).pictures / f"{figure.name}.png") == shown(figure), again


@pytest.mark.parametrize("grid", GRIDS)
def test_the_pages_show_each_of_their_pictures_once(grid: str) -> None:
    """A part whose figures are not drawn any more would leave their pictures behind."""
    folders = {page: f"]({pages(grid).pictures_of(page)}/" for page in pages(grid).documents}
    texts = {folder: page.read_text(encoding="utf-8") for page, folder in folders.items()}
    stored = [file.name for file in pages(grid).pictures.glob("*.png")]
    assert [sum(text.count(f"{folder}{name})") for folder, text in texts.items()) for name in stored] == [1] * len(
        stored
    )
    assert sum(text.count(folder) for folder, text in texts.items()) == len(stored)


@pytest.mark.parametrize("grid", GRIDS)
def test_each_part_is_on_one_page_and_no_other_mark_is(grid: str) -> None:
    lines = [line for page in pages(grid).documents for line in page.read_text(encoding="utf-8").splitlines()]
    shown = sorted(line for line in lines if line.startswith("<!--"))
    assert shown == sorted(mark for name in parts(grid) for mark in marks(name))


def test_each_stored_grid_with_a_page_is_tested() -> None:
    assert {folder.name for folder in BASELINES.iterdir() if pages(folder.name).documents} <= set(GRIDS)
