"""Results that are kept with the code: an archive of the finished methods, and what the logs of its runs record."""

import re
from pathlib import Path

import pytest
import torch

from fedflat.analysis.provenance.run_log import events
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.host.progress import silent
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import FINAL, LOG, is_complete
from fedflat.bench.training.train import train_cell
from studies.reproduction import kept_results
from studies.reproduction.kept_results import finished, keep, kept, restore, runs_of
from tests.analysis.conftest import analysed

CPU = torch.device("cpu")
TINY = """
name: tiny
dataset: digits
model: cnn_gn
training: {rounds: 2, local_epochs: 1, batch_size: 32, lr: 0.1}
grid: {partition: [{name: iid, clients: 4}], participation: [{active: 2}], seeds: [0]}
methods: {fedavg: {}, fedsam: {hyperparameters: {rho: 0.1}}}
"""
WHOLE_LOG = """\
2026-11-25 04:41:11,100 started: {"dataset":{"name":"digits"}}
2026-11-25 04:41:11,200 engine: as measured earlier on this machine; delete '/home/me/choice.json' to measure again
2026-11-25 04:41:11,300 engine: loop, 1 thread
2026-11-25 04:41:12,000 round 1 of 2: local loss 1.1441, test accuracy 16.96 %, 126 ms per round
2026-11-25 05:00:00,000 resumed after round 1
2026-11-25 05:00:01,000 round 2 of 2: local loss 1.0441, test accuracy 26.96 %, 126 ms per round
2026-11-25 05:00:01,100 finished after round 2, 0.3 s of training, 0.1 s of evaluation
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a small experiment, of which nothing is kept; results are kept in `tmp_path`."""
    monkeypatch.setattr(kept_results, "KEPT", tmp_path / "kept")
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY, encoding="utf-8")
    return file


def train(file: Path, results: Path, *methods: str) -> None:
    requested = RequestedExperiment(str(file), results)
    for cell in requested.experiment.cells().values():
        if cell.address.method in methods:
            train_cell("tiny", cell, results, CPU, silent)


def test_what_is_kept_of_a_log():
    lines = [
        "2026-11-25 04:41:11 started",
        "2026-11-25 04:41:11 engine: loop, 1 thread",
        "2026-11-25 05:00:00 resumed after round 1",
        "2026-11-25 05:00:01 round 2 of 2: local loss 1.0441, test accuracy 26.96 %, 126 ms per round",
        "2026-11-25 05:00:01 finished after round 2, 0.3 s of training, 0.1 s of evaluation",
    ]
    for log in (WHOLE_LOG, "\n".join(lines)):
        assert events(log).splitlines() == lines


def test_finished_methods_are_kept(tiny, tmp_path):
    results, folder = tmp_path / "results", tmp_path / "kept" / "tiny"
    train(tiny, results, "fedavg")
    keep(str(tiny), results, ["tiny_table_accuracy"])
    there = finished(str(tiny), folder / "results")
    assert there.experiment.chosen == ("fedavg",)
    [(_, run)] = runs_of(there)
    lines = (run.path / LOG).read_text(encoding="utf-8").splitlines()
    said = [re.sub(r"^\S+ \S+ |[:,].*", "", line) for line in lines]
    assert (said[0], set(said[1:-2]), said[-2:]) == (
        "started",
        {"engine"},
        ["round 2 of 2", "finished after round 2"],
    )
    assert not (folder / "results" / "reports").exists()
    entry = Tables(there).filled("accuracy").entries[0][0][0]
    assert entry.mean == run.metrics()["test_accuracy"].iloc[-1]

    with pytest.raises(UserError, match=r"files of tiny_figure_surfaces are missing"):
        keep(str(tiny), results, ["tiny_figure_surfaces"])
    assert list(runs_of(finished(str(tiny), folder / "results"))), "nothing is lost"

    train(tiny, results, "fedsam")
    keep(str(tiny), results, ["tiny_table_accuracy"])
    whole = finished(str(tiny), folder / "results")
    assert whole.experiment.chosen is None
    assert [cell.method for cell, _ in runs_of(whole)] == ["fedavg", "fedsam"]


def test_what_is_restored_is_kept_with_further_runs(tiny, tmp_path):
    """So is an analysis that needs the final model, where that model is no longer stored."""
    old, new = tmp_path / "old", tmp_path / "new"
    targets = ["tiny_table_accuracy", "tiny_analysis_clients"]
    train_and_analyse(tiny, old, "fedavg")
    next(old.rglob(FINAL)).unlink()
    keep(str(tiny), old, targets)
    before = contents(tmp_path / "kept" / "tiny", "*/**/fedavg*/**/*")
    assert {Path(name).name for name in before} >= {"metrics.csv", "config.json", "run.log", "clients.csv"}
    assert not contents(tmp_path / "kept", "**/*.safetensors")

    train_and_analyse(tiny, new, "fedsam")
    computed = contents(new, "**/fedsam*/**/*")
    assert restore(str(tiny), new) > 0
    assert restore(str(tiny), new) == 0
    places = ("store", "experiments")
    written = {kind: [one.stat().st_mtime_ns for one in (new / kind).rglob("fedavg*/**/*.csv")] for kind in places}
    assert max(written["store"]) < min(written["experiments"]), "a list names files that are there"
    assert contents(new, "**/fedsam*/**/*") == computed
    keep(str(tiny), new, targets)
    assert [cell.method for cell, _ in runs_of(kept(str(tiny)))] == ["fedavg", "fedsam"]
    assert contents(tmp_path / "kept" / "tiny", "*/**/fedavg*/**/*") == before


def test_final_models_are_kept_without_states_and_restored(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_results, "KEPT", tmp_path / "kept")
    file, old, new = tmp_path / "tiny.yaml", tmp_path / "old", tmp_path / "new"
    file.write_text(TINY + "evaluation: {snapshot_every: 1}\n", encoding="utf-8")
    train(file, old, "fedavg")
    keep(str(file), old, ["tiny_table_accuracy"])
    restore(str(file), new)
    models = contents(old, "**/*.safetensors")
    assert len(models) == 3
    assert contents(new, "**/*.safetensors") == contents(old, f"**/{FINAL}")
    assert "1 run, 1 final model, 0 states." in (tmp_path / "kept/tiny/README.md").read_text(encoding="utf-8")


def test_an_interrupted_restore_is_not_taken_for_a_whole_one(tiny, tmp_path, monkeypatch):
    """Whichever file is the first that is not copied, a run or cell that counts as finished has all its files."""
    old = tmp_path / "old"
    train(tiny, old, "fedavg")
    keep(str(tiny), old, ["tiny_table_accuracy"])
    [whole] = [run.path for _, run in runs_of(kept(str(tiny)))]
    names = {one.name for one in whole.iterdir()}
    interrupted = 0
    for last in range(restore(str(tiny), tmp_path / "new")):
        new, copied = tmp_path / f"new-{last}", iter(range(last))
        with monkeypatch.context() as patch, pytest.raises(StopIteration):
            patch.setattr(
                kept_results.shutil, "copyfile", lambda a, b, n=copied: (next(n), b.write_bytes(a.read_bytes()))
            )
            restore(str(tiny), new)
        run = new / whole.relative_to(tmp_path / "kept" / "tiny" / "results")
        if is_complete(run):
            interrupted += 1
            assert {one.name for one in run.iterdir()} == names
        assert is_complete(run) or not list(new.glob("experiments/**/*.csv"))
    assert interrupted, "a run can be whole before its cell"


def test_nothing_that_is_kept_is_lost(tiny, tmp_path):
    results = tmp_path / "results"
    train(tiny, results, "fedavg")
    keep(str(tiny), results, ["tiny_table_accuracy"])
    before = contents(tmp_path / "kept", "**/*")
    [model], [log] = results.rglob(FINAL), results.rglob(LOG)
    model.unlink()
    with pytest.raises(
        UserError, match=r"safetensors' is kept, but is missing in the results .*; nothing was replaced"
    ):
        keep(str(tiny), results, ["tiny_table_accuracy"])
    assert contents(tmp_path / "kept", "**/*") == before
    restore(str(tiny), results)
    log.unlink()
    with pytest.raises(UserError, match=r"run.log' is missing; nothing was replaced"):
        keep(str(tiny), results, ["tiny_table_accuracy"])
    assert contents(tmp_path / "kept", "**/*") == before
    restore(str(tiny), results)
    keep(str(tiny), results, ["tiny_table_accuracy"])
    assert contents(tmp_path / "kept", "**/*") == before


def test_nothing_is_lost_after_an_interruption(tiny, tmp_path):
    """The swap is two renames, so the kept results can be left under the name of the old ones."""
    results, fewer = tmp_path / "results", tmp_path / "fewer"
    train(tiny, results, "fedavg", "fedsam")
    keep(str(tiny), results, ["tiny_table_accuracy"])
    before = contents(tmp_path / "kept", "**/*")
    (tmp_path / "kept" / "tiny").rename(tmp_path / "kept" / ".tiny.old")
    train(tiny, fewer, "fedavg")
    with pytest.raises(UserError, match=r"fedsam/runs.csv' is kept, but is missing in the results"):
        keep(str(tiny), fewer, ["tiny_table_accuracy"])
    assert contents(tmp_path / "kept", "**/*") == before


def test_files_of_two_runs_are_not_mixed(tiny, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    train(tiny, old, "fedavg", "fedsam")
    keep(str(tiny), old, ["tiny_table_accuracy"])
    train(tiny, new, "fedsam")
    before = contents(new, "**/*")
    with pytest.raises(UserError, match=r"fedsam-\w+/seed-0' is another run than the one that is kept: .* nothing was"):
        restore(str(tiny), new)
    assert contents(new, "**/*") == before


def test_only_what_is_kept_is_restored(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_results, "KEPT", tmp_path / "kept")
    (tmp_path / "kept" / "other").mkdir(parents=True)
    with pytest.raises(UserError, match=r"^no results of 'quick' are kept \(allowed: other\)$"):
        restore("quick", tmp_path / "results")


def train_and_analyse(file: Path, results: Path, method: str) -> None:
    train(file, results, method)
    requested = RequestedExperiment(str(file), results)
    [cell] = [cell for cell in requested.experiment.addresses if cell.method == method]
    analysed(requested.paths, "tiny", cell.path, "clients", requested.analyses["clients"])


def contents(folder: Path, pattern: str) -> dict[str, bytes]:
    """The files that match a pattern, by their path below the folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.glob(pattern) if file.is_file()}
