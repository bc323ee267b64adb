"""A request of finished runs is answered at once, unless anything that it depends on has changed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.training.answers import FOLDER
from tests import commands
from tests.places import MINI

CELL = "digits/dirichlet-0.1/4-of-20/fedavg"


def printed(folder: Path, *options: str) -> list[str]:
    """The lines that `fedflat run` prints, without the last one, which has its times."""
    words = ["run", "own/experiments.yaml", CELL, "--set", "grid.seeds=[0]", "--set", "training.rounds=2", *options]
    done = commands.fedflat(*words, *([] if "--device" in options else ["--device", "cpu"]), cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[:-1]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    above = tmp_path_factory.mktemp("answers")
    (above / "results" / "store").mkdir(parents=True)
    folder = above / "below"
    shutil.copytree(Path(MINI).parent, folder / "own")
    first = printed(folder)
    assert first[0] == (
        f"a new folder of results: '{folder}/results' (the nearest results above are in '{above}/results'; "
        f"--results {above}/results uses them)"
    )
    assert "not trained again" not in first[-2]
    return folder


@pytest.fixture
def folder(answered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(answered, tmp_path / "folder"))


def with_other_answers(folder: Path) -> None:
    """Change what the kept answers say, so that it shows whether one of them is given."""
    for file in (ResultPaths(folder / "results").store / FOLDER).iterdir():
        kept = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**kept, "lines": ["kept"]}), encoding="utf-8")


def test_the_answer_is_what_a_whole_command_says(folder: Path) -> None:
    quick = printed(folder)
    shutil.rmtree(ResultPaths(folder / "results").store / FOLDER)
    assert printed(folder) == quick
    assert "(finished earlier, not trained again)" in quick[0]
    with_other_answers(folder)
    assert printed(folder) == ["kept"]
    moved = folder.rename(folder.with_name("moved"))
    assert printed(moved) == ["kept"], "a folder may be moved"


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: shutil.rmtree(next((folder / "results").rglob("seed-0"))),
        lambda folder: next((folder / "results").rglob("provenance.json")).write_text("{}", encoding="utf-8"),
        lambda folder: next((folder / "results").rglob("metrics.csv")).unlink(),
        lambda folder: os.truncate(next((folder / "results").rglob("final.safetensors")), 1000),
        lambda folder: (folder / "own" / "experiments.yaml").open("a").write("# a remark\n"),
    ],
)
def test_after_a_change_nothing_kept_is_said(change, folder: Path) -> None:
    with_other_answers(folder)
    change(folder)
    words = ["run", "own/experiments.yaml", CELL, "--set", "grid.seeds=[0]", "--set", "training.rounds=2"]
    assert "kept" not in commands.fedflat(*words, "--device", "cpu", cwd=folder).stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="auto is then another device")
def test_a_job_of_snakemake_answers_for_the_device_that_is_found(folder: Path) -> None:
    """It names the device; so does the fixture."""
    with_other_answers(folder)
    assert printed(folder, "--device", "auto") == ["kept"]


def test_what_is_current_is_answered_with_replace_too(folder: Path) -> None:
    with_other_answers(folder)
    assert printed(folder, "--replace") == ["kept"]


@pytest.mark.parametrize("options", [("--list",), ("--set", "training.lr=0.3")])
def test_another_request_has_another_answer(options, folder: Path) -> None:
    with_other_answers(folder)
    assert printed(folder, *options) != ["kept"]


def test_an_answer_that_cannot_be_kept_is_no_error(folder: Path) -> None:
    kept = ResultPaths(folder / "results").store / FOLDER
    shutil.rmtree(kept)
    kept.write_text("a file in the way", encoding="utf-8")
    assert "not trained again" in printed(folder)[0]


def test_an_answer_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys; sys.argv = ['fedflat', *sys.argv[1:]]; from fedflat.cli.app import command; command(); "
        "sys.exit('torch' in sys.modules)"
    )
    words = ["run", "own/experiments.yaml", CELL, "--set=grid.seeds=[0]", "--set=training.rounds=2", "--device", "cpu"]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
