"""The page of the reproduction shows the results that are kept with the code."""

import pytest

from analysis.comparison.pages.part import shown
from analysis.provenance.kept_results import KEPT, kept, log_of, runs_of
from analysis.provenance.reproduction_page import EXPERIMENT, PAGE, PARTS, PICTURES, parts
from analysis.report.pictures import shown_by
from bench.files.marked_text import marks, part

AGAIN = "python -m analysis.provenance.reproduction_page"


@pytest.mark.long
def test_the_page_shows_the_kept_results() -> None:
    pictures = set()
    for name, made in parts().items():
        assert part(PAGE, name) == made.markdown(PICTURES), AGAIN
        for figure in made.figures:
            file = PAGE.parent / PICTURES / f"{figure.name}.png"
            pictures.add(file)
            assert shown_by(file) == shown(figure), AGAIN
    assert set((PAGE.parent / PICTURES).glob("*.png")) == pictures


def test_the_page_has_known_parts() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert {line for line in lines if line.startswith("<!--")} <= {mark for name in PARTS for mark in marks(name)}


def test_each_run_has_all_rounds_and_a_log() -> None:
    requested = kept(EXPERIMENT)
    found = list(runs_of(requested))
    assert found
    for cell, run in found:
        rounds = requested.experiment.cell(cell.path).runs[0].training.rounds
        assert len(run.metrics()) == rounds
        lines = log_of(KEPT / EXPERIMENT, cell, run).read_text(encoding="utf-8").splitlines()
        assert lines[0].endswith(" started")
        assert f"round {rounds} of {rounds}: " in lines[-1]
        assert '"/' not in (run.path / "config.json").read_text(encoding="utf-8"), "no path of a machine"
