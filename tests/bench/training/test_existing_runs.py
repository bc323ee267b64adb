"""A place that holds something: a run is left alone, replaced on demand, or refused in one line; nothing is lost."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.files.atomic import replacing
from fedflat.bench.files.csv_json import read_checked_json, write_checked_json
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.code_version import code_fingerprint
from fedflat.bench.training.current import current_run
from fedflat.bench.training.directories.working_directory import alone, working_directory
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell, train_runs
from tests.bench.training.small_runs import CPU, SETTING, SMALL, config, contents
from tests.problems import train
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(config(), tmp_path_factory.mktemp("whole") / "run", CPU).path


def test_a_finished_run_is_left_alone(tmp_path):
    run = train(config(), tmp_path / "run", CPU).path
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    train(config(), tmp_path / "run", CPU)
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before


def test_another_configuration_in_the_way_is_refused_and_untouched(tmp_path):
    run = train(config(), tmp_path / "run", CPU).path
    before = contents(run)
    message = r"holds a run of another configuration \(training.rounds: 6 there, 4 here\): move it away"
    for replace in (False, True):
        with pytest.raises(UserError, match=message):
            train(config(**{"training.rounds": 4}), tmp_path / "run", CPU, replace=replace)
    assert contents(run) == before


def edited(file):
    file.write_text(file.read_text(encoding="utf-8").replace("0.1", "0.2"), encoding="utf-8")


def cut(file):
    file.write_bytes(file.read_bytes()[:-9])


@pytest.mark.parametrize("replace", [True, "damaged"])
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("metrics.csv", os.remove),
        ("times.csv", os.remove),
        ("config.json", os.remove),
        ("config.json", edited),
        ("config.json", cut),
        ("provenance.json", os.remove),
        ("partition.csv.gz", os.remove),
        ("final.safetensors", cut),
        ("final.safetensors", os.remove),
        ("snapshots/round-00003.safetensors", cut),
    ],
)
def test_a_damaged_run_is_refused_and_replaced_on_demand(whole, tmp_path, name, damage, replace):
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    damage(run / name)
    with pytest.raises(UserError, match=f"{name}' is damaged"):
        current_run(run, config())
    said = []
    assert current_run(run, config(), replace=replace, progress=said.append) is None
    assert len(said) == 1
    assert said[0].startswith(f"'{run / name}' is damaged")
    assert said[0].endswith(": the run is trained again")


def test_a_damaged_run_is_trained_again_with_the_same_bits(whole, tmp_path):
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    cut(run / "final.safetensors")
    (run / "config.json").unlink()
    assert contents(train(config(), run, CPU, replace=True).path) == contents(whole)


def test_replace_trains_again_what_lacks_a_state_that_others_have(whole, tmp_path):
    """Only then are the states counted."""
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    (run / "snapshots" / "round-00003.safetensors").unlink()
    assert current_run(run, config(), replace="damaged") is not None
    assert current_run(run, config(), replace=True) is None


def test_a_damaged_run_of_another_configuration_is_not_replaced(whole, tmp_path):
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    edited(run / "config.json")
    with pytest.raises(UserError, match=r"holds a run of another configuration \(.*is damaged .*\): move it away"):
        current_run(run, config(**{"training.rounds": 4}), replace=True)


def test_replace_keeps_what_is_current_and_never_deletes_what_is_no_run(tmp_path):
    run = train(config(), tmp_path / "run", CPU).path
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    train(config(), tmp_path / "run", CPU, replace=True)
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("years of work", encoding="utf-8")
    (tmp_path / "file").write_text("also mine", encoding="utf-8")
    for place in ("notes", "file"):
        with pytest.raises(UserError, match="is not a run directory"):
            train(config(), tmp_path / place, CPU, replace=True)
    assert (tmp_path / "notes" / "mine.txt").read_text(encoding="utf-8") == "years of work"
    assert (tmp_path / "file").read_text(encoding="utf-8") == "also mine"


def test_a_run_of_other_code_is_reported_and_replaced_on_demand(tmp_path):
    cell = load_experiment("quick", {**SMALL, "grid.seeds": [0]}).cell(f"{SETTING}/fedavg")
    said = []
    about = train_cell("quick", cell, tmp_path, CPU, said.append) / "seed-0" / "provenance.json"
    stated = read_checked_json(about, "")
    write_checked_json(about, {**stated, "code": {**stated["code"], "fingerprint": "0123456789abcdef"}})
    train_cell("quick", cell, tmp_path, CPU, said.append)
    assert any("another version of the code" in line for line in said)
    assert "0123456789abcdef" in about.read_text(encoding="utf-8")
    train_cell("quick", cell, tmp_path, CPU, said.append, replace=True)
    assert code_fingerprint() in about.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "[1, 2]"),
        ("config.json", "{"),
        ("provenance.json", "{}"),
        ("provenance.json", "no"),
        ("provenance.json", '{"outcome": "finished", "identity": "0", "code": 5}'),
        ("config.json", "[" * 100_000),
        ("metrics.csv", ""),
    ],
)
def test_a_damaged_run_is_one_line(file, content, tmp_path):
    run = train(config(), tmp_path / "run", CPU)
    (run.path / file).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=f"{file}' is damaged .*: repeat the command .* with --replace") as caught:
        damaged = RunDirectory(run.path)
        _ = damaged.config, damaged.provenance, damaged.metrics()
    assert "\n" not in str(caught.value)


def test_a_config_of_another_version_is_refused_and_untouched(tmp_path):
    run = train(config(), tmp_path / "run", CPU).path
    code = {"version": "0.1.0", "fingerprint": "0" * 16}
    for name, change in (("config.json", {"version": 0}), ("provenance.json", {"identity": "0" * 16, "code": code})):
        write_checked_json(run / name, {**read_checked_json(run / name, ""), **change})
    with pytest.raises(UserError, match="of another version or damaged: version = 0"):
        train(config(), tmp_path / "run", CPU)
    assert (run / "metrics.csv").is_file()


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "notes").mkdir()
    with pytest.raises(UserError, match="is not a run directory"):
        train(config(), tmp_path / "notes", CPU)


def test_what_a_killed_process_was_writing_is_not_stored(tmp_path):
    work = working_directory(tmp_path / "run", config())
    with replacing(work / "snapshots" / "whole") as temporary:
        pass
    temporary.write_text("ha", encoding="utf-8")
    assert working_directory(tmp_path / "run", config()) == work
    assert [file.name for file in work.rglob("*") if file.is_file()] == ["whole"]


def test_a_run_that_another_process_trains_is_waited_for_and_taken(tmp_path, monkeypatch):
    """Each process trains one of two runs: each run once."""
    runs = load_experiment("quick", SMALL).cell(f"{SETTING}/fedavg").runs[:2]
    folders = [tmp_path / "cell" / f"seed-{run.seed}" for run in runs]
    monkeypatch.setattr("fedflat.bench.files.locks.WAITING_SECONDS", 0.01)
    began, said = threading.Event(), list[str]()

    def other() -> None:
        with alone(folders[1], runs[1], str):
            began.set()
            wait_for(lambda: any("waits" in line for line in said))
            shutil.copytree(train(runs[1], tmp_path / "elsewhere", CPU).path, folders[1])

    thread = threading.Thread(target=other)
    thread.start()
    began.wait()
    found = train_runs(runs, folders, CPU, said.append)
    thread.join()
    assert [line for line in said if "waits" in line] == [
        f"seed {runs[1].seed}: waits for another process, which trains '{folders[1]}'"
    ]
    assert [run.identity for run in found] == [run.identity for run in runs]
    assert sorted(file.name for file in folders[0].parent.iterdir()) == [folder.name for folder in folders]


def test_what_a_process_with_the_same_number_left_does_not_stop_a_run(tmp_path):
    """In a container, a process often has the number of a killed one, which was replacing a run."""
    run = train(config(), tmp_path / "run", CPU).path
    shutil.copytree(run, tmp_path / f".run.replaced-{os.getpid()}")
    (run / "metrics.csv").unlink()
    train(config(), tmp_path / "run", CPU, replace=True)
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def test_a_finished_run_that_cannot_be_put_into_its_place_is_not_lost(tmp_path, monkeypatch):
    config = load_experiment("quick", {"training.rounds": 2}).cell("digits/dirichlet-0.1/4-of-20/fedavg").runs[0]

    def refuse(work, out):
        raise UserError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("fedflat.bench.training.train.publish", refuse)
        with pytest.raises(UserError, match="no room"):
            train(config, tmp_path / "run", CPU)
    [left] = tmp_path.glob("run.partial-*")
    before = (left / "times.csv").read_bytes()
    (left / "checkpoint.safetensors").write_bytes(b"as if it was killed before it removed this")
    run = train(config, tmp_path / "run", CPU)
    assert (run.path / "times.csv").read_bytes() == before, "it was not trained again"
    assert not (run.path / "checkpoint.safetensors").exists()
