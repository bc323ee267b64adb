"""The pages of the reproduction show the results that are kept with the code."""

import hashlib
import re

import pytest

from fedflat.bench.experiments.results import CHECKSUMS
from fedflat.bench.training.run_directory import LOG
from studies.marked_text import marks, part
from studies.part import shown
from studies.pictures import shown_by
from studies.reproduction.kept_results import KEPT, kept, runs_of
from studies.reproduction.page import EXPERIMENT, IMAGES, PAGES, PARTS, parts
from tests.tiers import thorough

AGAIN = "python -m studies.reproduction.page"
NAMES = sorted(folder.name for folder in KEPT.glob("[!.]*"))


@thorough
@pytest.mark.long
def test_the_pages_show_the_kept_results() -> None:
    pictures = set()
    for name, made in parts().items():
        for page in PAGES.with_part(name):
            assert part(page, name) == made.markdown(PAGES.pictures_of(page)), AGAIN
        for figure in made.figures:
            file = PAGES.pictures / f"{figure.name}.png"
            pictures.add(file)
            assert shown_by(file) == shown(figure), AGAIN
    assert set(PAGES.pictures.glob("*.png")) == pictures


def test_the_command_of_the_page_names_the_kept_methods() -> None:
    text, chosen = PAGES.documents[0].read_text(encoding="utf-8"), kept(EXPERIMENT).experiment.chosen
    [command] = re.findall(r"^snakemake .*results=results/reproductions/.*$", text, re.MULTILINE)
    assert re.findall(r" methods=\[(.*)\]$", command) == ([] if chosen is None else [",".join(chosen)])


def test_each_part_is_on_one_page_and_no_other_mark_is() -> None:
    lines = [line for page in PAGES.documents for line in page.read_text(encoding="utf-8").splitlines()]
    shown = sorted(line for line in lines if line.startswith("<!--"))
    assert shown == sorted(mark for name in PARTS for mark in marks(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_kept_files_have_their_checksums(name: str) -> None:
    folder = KEPT / name
    lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    for digest, file in (line.split("  ", 1) for line in lines):
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file


@pytest.mark.parametrize("name", NAMES)
def test_each_run_has_all_rounds_and_a_log(name: str) -> None:
    requested = kept(name)
    found = list(runs_of(requested))
    assert found
    for cell, run in found:
        rounds = requested.experiment.cell(cell.path).runs[0].training.rounds
        assert len(run.metrics()) == rounds
        lines = (run.path / LOG).read_text(encoding="utf-8").splitlines()
        assert lines[0].endswith(" started")
        last = next(line for line in reversed(lines) if f" finished after round {rounds}, " not in line)
        assert f"round {rounds} of {rounds}: " in last
        assert '"/' not in (run.path / "config.json").read_text(encoding="utf-8"), "no path of a machine"


def test_everything_that_is_kept_is_shown() -> None:
    assert {name for name in IMAGES if list(runs_of(kept(name)))} == {*NAMES} == {*IMAGES}
