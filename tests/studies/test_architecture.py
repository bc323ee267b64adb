"""The page about the architecture is true: its drawing is that of the imports, and what it names exists."""

import re

import pytest

from studies.architecture import PICTURE, WAY, House
from studies.imports import ROOMS
from studies.pictures import shown_by
from tests.places import ROOT

PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_drawing_is_that_of_the_imports() -> None:
    assert shown_by(PICTURE) == House.built().fingerprint, "draw it again: python -m studies.architecture"


def test_a_room_stands_on_lower_ones_without_a_third_between_them() -> None:
    house = House.built()
    assert [room for floor in house.floors for room in floor if room not in ROOMS] == []
    assert house.below["fedflat.bench.models"] == ("fedflat.bench.data",), "which brings all rooms below it"
    for room, below in house.below.items():
        assert all(ROOMS.index(other) < ROOMS.index(room) for other in below)
        reached, left = set(), [far for near in below for far in house.below[near]]
        while left:
            reached.add(far := left.pop())
            left += house.below[far]
        assert not reached & set(below)


def test_the_page_describes_the_way_of_a_run_in_the_numbers_of_the_drawing() -> None:
    described = re.findall(r"^(\d)\. \*\*(\w+)\*\*", TEXT, re.MULTILINE)
    assert described == [(str(number), room.rpartition(".")[2]) for number, room in enumerate(WAY, 1)]


@pytest.mark.parametrize("link", re.findall(r"\]\((\.\./[^)#]+)", TEXT))
def test_what_the_page_names_exists(link: str) -> None:
    assert (PAGE.parent / link).is_file()


def test_the_reading_path_has_four_files_and_each_kind_an_example_and_a_test() -> None:
    path = TEXT.partition("## What to read first")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\| \[", path, re.MULTILINE)) == 4
    rows = re.findall(r"^\| ([\w ]+) \| .* \| (.*) \| (.*) \|$", TEXT.partition("## To add something")[2], re.MULTILINE)
    kinds = {kind: (example, test) for kind, example, test in rows if kind != "to add a"}
    assert {"method", "data set", "partition", "model", "metric", "analysis", "table", "figure", "paper"} <= set(kinds)
    for example, test in kinds.values():
        assert "](../" in example
        assert "](../tests/" in test
