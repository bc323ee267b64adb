"""Results of the layout before the store are taken over without training, and whatever cannot be taken stays."""

import hashlib
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.stored import is_current as analysis_is_current
from fedflat.analysis.analyses.stored import wanted_files
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.provenance.archive import write_archive
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.store.take_over import is_earlier, take_over
from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.results import CHECKSUMS, ResultPaths
from fedflat.bench.files.csv_json import read_checked_json, write_checked_json
from fedflat.bench.host.progress import silent
from fedflat.bench.training.lists import is_current
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell
from tests.analysis.conftest import analysed, read_rows
from tests.commands import fedflat
from tests.places import MINI
from tests.tables import with_column

CPU = torch.device("cpu")
OVERRIDES = {"training.rounds": 2, "evaluation.every": 1}


def requested(results: Path) -> RequestedExperiment:
    return RequestedExperiment(MINI, results, OVERRIDES)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of the small experiment, with an analysis that compares runs and one that does not."""
    results = tmp_path_factory.mktemp("stored") / "results"
    mini = requested(results)
    for cell in mini.experiment.cells().values():
        train_cell("mini", cell, results, CPU, silent)
    for path in mini.experiment.paths():
        for name in ("drift", "convergence"):
            analysed(mini.paths, "mini", path, name, mini.analyses[name], mini.compared(path, name))
    return results


def earlier(stored: Path, results: Path) -> Path:
    """The same results in the earlier layout, with a copy of a run that another experiment had taken."""
    old, mini = ResultPaths(stored), requested(stored)
    for path, cell in mini.experiment.cells().items():
        folder, tables = results / "runs" / "mini" / path, []
        for run in cell.runs:
            place = shutil.copytree(
                old.run(run), folder / f"seed-{run.seed}", ignore=shutil.ignore_patterns("analyses")
            )
            ids = {"experiment": "mini", **cell.address.columns, "identity": run.identity, "seed": run.seed}
            tables.append(RunDirectory(place).metrics().assign(**ids))
        with_column(folder / "metrics.csv", pd.concat(tables))
        for name in ("drift", "convergence"):
            rows = read_rows(old.analysis("mini", path, name))
            rows = rows.assign(experiment="mini", **cell.address.columns)
            with_column(results / "analysis" / "mini" / path / f"{name}.csv", rows)
    first = next(results.rglob("seed-0"))
    taken = shutil.copytree(first, results / "runs" / "other" / first.relative_to(results / "runs" / "mini"))
    about = read_checked_json(taken / "provenance.json", "")
    write_checked_json(taken / "provenance.json", {**about, "taken_from": "runs/mini/..."})
    return results


def numbers(results: Path, name: str) -> pd.DataFrame:
    tidy: Tidy = requested(results).tidy
    return tidy.gather(name, requested(results).experiment.addresses)


def check_same(results: Path, stored: Path) -> None:
    """The lists are current, and have the numbers of the store."""
    mini = requested(results)
    assert all(is_current(mini.paths, "mini", cell) for cell in mini.experiment.cells().values())
    for name in ("metrics", "drift", "convergence"):
        pd.testing.assert_frame_equal(numbers(results, name), numbers(stored, name))
    assert not is_earlier(results)


def test_runs_lists_and_analyses_are_those_of_the_store(stored: Path, tmp_path: Path) -> None:
    results = earlier(stored, tmp_path / "results")
    done = take_over(results)
    assert (done.runs, done.again, done.left) == (4, 1, [])
    check_same(results, stored)
    assert take_over(results).runs == 0


@pytest.mark.parametrize("killed", range(1, 10, 3))
def test_it_goes_on_after_a_kill(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: int) -> None:
    """Whichever file or folder was the last that was moved or removed."""
    results, left = earlier(stored, tmp_path / "results"), iter(range(killed))
    for name in ("rename", "unlink"):
        own = getattr(Path, name)

        def once(self: Path, *arguments: object, own=own, **options: object) -> object:
            if "results" in self.parts and not self.name.startswith(".") and next(left, None) is None:
                raise KeyboardInterrupt
            return own(self, *arguments, **options)

        monkeypatch.setattr(Path, name, once)
    with pytest.raises(KeyboardInterrupt):
        take_over(results)
    monkeypatch.undo()
    assert take_over(results).left == []
    check_same(results, stored)


def test_what_cannot_be_taken_stays_and_is_named(stored: Path, tmp_path: Path) -> None:
    results = earlier(stored, tmp_path / "results")
    unfinished = results / "runs" / "mini" / "digits/dirichlet-0.1/4-of-20/fedsam/seed-5.partial-01234567"
    unfinished.mkdir()
    (unfinished / "checkpoint.safetensors").touch()
    [damaged] = results.glob("runs/mini/digits/dirichlet-0.1/4-of-20/fedsam/seed-1")
    (damaged / "config.json").write_text("{", encoding="utf-8")
    done = take_over(results)
    assert done.runs == 3
    assert damaged.is_dir() and unfinished.is_dir()
    assert any(str(damaged) in line and "is damaged" in line for line in done.left)
    assert any("runs of the cell are not in the store" in line for line in done.left)
    assert list(IDS) == list(numbers(results, "metrics"))[:4]
    assert set(numbers(results, "metrics")["method"]) == {"fedavg"}


def test_an_archive_of_the_earlier_form_is_imported(stored: Path, tmp_path: Path) -> None:
    """Its checksums are then those of its files."""
    earlier(stored, tmp_path / "archive" / "results")
    files = [file for file in (tmp_path / "archive").rglob("*") if file.is_file()]
    write_archive(tmp_path / "a.zip", {file.relative_to(tmp_path / "archive").as_posix(): file for file in files})
    done = fedflat("import", tmp_path / "a.zip", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    check_same(tmp_path / "out" / "results", stored)
    stated = (tmp_path / "out" / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    digests = {line.split("  ")[1]: line.split("  ")[0] for line in stated}
    there = {file.relative_to(tmp_path / "out").as_posix() for file in (tmp_path / "out").rglob("*") if file.is_file()}
    assert digests.keys() == there - {CHECKSUMS}
    for name, digest in digests.items():
        assert hashlib.sha256((tmp_path / "out" / name).read_bytes()).hexdigest() == digest


def test_no_copy_is_removed_that_alone_has_a_model(stored: Path, tmp_path: Path) -> None:
    results = earlier(stored, tmp_path / "results")
    [copy] = (results / "runs" / "other").rglob("config.json")
    taken_first = results / "runs" / "mini" / copy.parent.relative_to(results / "runs" / "other")
    (taken_first / "final.safetensors").unlink()
    assert take_over(results).again == 1
    places = [file.parent for file in (results / "store").rglob("config.json")]
    assert len(places) == 4
    assert all((place / "final.safetensors").is_file() for place in places)


def test_a_copy_with_another_model_stays(stored: Path, tmp_path: Path) -> None:
    results = earlier(stored, tmp_path / "results")
    [copy] = (results / "runs" / "other").rglob("final.safetensors")
    copy.write_bytes(b"another model")
    [line] = take_over(results).left
    assert line.startswith(f"'{copy.parent}' is left: ")
    assert line.endswith("final.safetensors' differs")
    assert copy.read_bytes() == b"another model"


def test_a_stored_analysis_is_outdated_when_it_or_a_compared_run_changes(stored: Path, tmp_path: Path) -> None:
    results = Path(shutil.copytree(stored, tmp_path / "results"))
    mini = requested(results)
    analysis = parse_analysis("interpolation", {"towards": "fedavg", "images": 60, "steps": 2})
    path = next(path for path in mini.experiment.paths() if path.endswith("fedsam"))
    address, other = mini.experiment.cell(path).address, path.replace("fedsam", "fedavg")
    analysed(mini.paths, "mini", path, "interpolation", analysis, [other])
    files = wanted_files(mini.paths, mini.experiment, analysis, address)
    list_file = mini.paths.analysis("mini", path, "interpolation")
    assert analysis_is_current(mini.paths, list_file, files)
    [file, *_] = [file for *_, file in files]
    right = file.read_bytes()
    file.write_bytes(right + b"\n")
    assert not analysis_is_current(mini.paths, list_file, files), "other content"
    file.write_bytes(right)
    for run in mini.experiment.cell(other).runs:
        about = mini.paths.run(run) / "provenance.json"
        write_checked_json(about, {**read_checked_json(about, ""), "started": "later"})
    analysed(mini.paths, "mini", path, "interpolation", analysis, [other])
    assert file.read_bytes() != right, "computed again, for another training of the run with which it is compared"


def test_the_command(stored: Path, tmp_path: Path) -> None:
    results = earlier(stored, tmp_path / "results")
    done = fedflat("take-over", "--results", results)
    assert done.stdout.splitlines()[-1].startswith("4 runs and ")
    assert "has no results of earlier versions" in fedflat("take-over", "--results", results).stderr
