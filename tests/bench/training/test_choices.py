"""A run keeps the choice with which it began, and a repeated run takes it again, whatever is measured later."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from fedflat.bench.engine.backends import BACKENDS
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.csv_json import write_checked_json
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import CannotBatchError
from fedflat.bench.training.calibration import _Calibration, choose_engine, unmeasured
from fedflat.bench.training.directories.working_directory import remove_stale, working_directory
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import RunSetup
from fedflat.bench.training.train import train_cell, train_runs
from tests.bench.training.small_runs import SETTING, contents, killed_in_round
from tests.bench.training.test_engine_choice import engine_lines
from tests.problems import train

CPU = torch.device("cpu")
COHORT, LOOP = EngineChoice("cohort"), EngineChoice("loop", channels_last=True)
CHANGES = {
    "training.rounds": 5,
    "training.local_epochs": 1,
    "evaluation.snapshot_every": 5,
    "engine.checkpoint_seconds": 0,
}


def cell(method="fedsam", experiment="quick", **changes):
    return load_experiment(experiment, {**CHANGES, **changes}).cell(f"{SETTING}/{method}")


@contextmanager
def home(folder: Path, choice: EngineChoice | None, *configs):
    """A home folder in which this choice was measured for these runs; the environment with this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("XDG_CACHE_HOME", str(folder / ".cache"))
        for config in configs if choice is not None else ():
            setup = RunSetup.build(config, CPU)
            _Calibration(setup, setup.federation.start(setup.objective.initial())).store(choice)
        yield dict(os.environ)


@pytest.mark.parametrize(("first", "second"), [(COHORT, LOOP), (LOOP, COHORT)], ids=["cohort", "loop"])
@pytest.mark.parametrize(("checkpoint_seconds", "begins"), [(0, "resumed after round 3"), (600, "as the run began")])
def test_a_killed_run_goes_on_as_it_began(first, second, checkpoint_seconds, begins, tmp_path):
    """With another home folder, where another choice was measured; the first folder is gone."""
    config = cell(**{"engine.checkpoint_seconds": checkpoint_seconds}).runs[0]
    with home(tmp_path / "one", first, config):
        undisturbed = train(config, tmp_path / "undisturbed", CPU)
        with killed_in_round(3):
            train(config, tmp_path / "killed", CPU)
    shutil.rmtree(tmp_path / "one")
    with home(tmp_path / "other", second, config):
        other = train(config, tmp_path / "never-killed", CPU)
        resumed = train(config, tmp_path / "killed", CPU)
    assert begins in (resumed.path / "run.log").read_text(encoding="utf-8")
    assert contents(resumed.path) == contents(undisturbed.path)
    assert resumed.provenance["engine"] == first.as_json() == undisturbed.provenance["engine"]
    assert contents(other.path) != contents(undisturbed.path), "choices with equal bits show nothing"
    assert not list(tmp_path.glob("**/engine.json"))


def test_a_run_that_moves_to_another_machine_records_both(tmp_path, monkeypatch):
    """Begun on a GPU, which is imitated by its name and its choice, and continued on a CPU."""
    config = cell(**{"engine.checkpoint_seconds": 0}).runs[0]
    graph = EngineChoice("graph")
    with home(tmp_path / "home", LOOP, config):
        with monkeypatch.context() as patch:
            patch.setattr("fedflat.bench.training.provenance.device_name", lambda device: "NVIDIA H200")
            patch.setattr("fedflat.bench.training.training_run.device_name", lambda device: "NVIDIA H200")
            patch.setattr("fedflat.bench.training.choices.choose_engine", lambda *_: graph)
            patch.setitem(BACKENDS, "graph", Loop)
            with killed_in_round(3):
                train(config, tmp_path / "run", CPU)
        run = train(config, tmp_path / "run", CPU)
    about = run.provenance
    found = [(part["after_round"], part["device"]) for part in about["computed_on"]]
    assert found == [(0, "NVIDIA H200"), (3, about["device"])]
    assert about["engine_at_start"]["backend"] == "graph"
    assert about["engine"]["backend"] == "loop"


def test_a_repeated_run_is_computed_as_before(tmp_path):
    """When it is replaced, because the code has changed, by whatever experiment."""
    paths = ResultPaths(tmp_path / "results")
    one, same = cell(**{"grid.seeds": [0]}), cell(experiment="quick_all", **{"grid.seeds": [0]})
    assert one.identity == same.identity
    with home(tmp_path / "one", COHORT, *one.runs):
        train_cell("quick", one, paths.root, CPU, lambda line: None)
    first = paths.run(one.runs[0])
    before = contents(first)
    about = RunDirectory(first).provenance
    other_code = {**about["code"], "fingerprint": "0123456789abcdef"}
    with home(tmp_path / "other", LOOP, *one.runs):
        write_checked_json(first / "provenance.json", {**about, "code": other_code})
        train_cell("quick_all", same, paths.root, CPU, lambda line: None, replace=True)
        assert engine_lines(first) == [f"as in '{first}'", "cohort, 1 thread"]
        assert RunDirectory(first).of_this_code
        assert contents(first) == before
        fixed = cell(**{"grid.seeds": [0], "engine.backend": "loop"})
        assert fixed.identity == one.identity
        with pytest.raises(UserError, match=r"was computed with engine\.backend = cohort, not loop; --replace trains"):
            train_cell("quick", fixed, paths.root, CPU, lambda line: None)
        assert contents(first) == before
        train_cell("quick", fixed, paths.root, CPU, lambda line: None, replace=True)
        assert engine_lines(first)[-1] == "loop, 1 thread"
        train_cell("quick", one, paths.root, CPU, lambda line: None, replace=True)
        assert engine_lines(first)[-1] == "loop, 1 thread", "a back end that is not fixed takes any"


@pytest.mark.parametrize("change", ["device", "identity", "threads", "damaged", "missing"])
def test_the_record_of_another_run_or_device_is_not_used(change, tmp_path):
    runs = tmp_path / "runs"
    config = cell().runs[0]
    with home(tmp_path / "one", COHORT, config):
        first = train(config, runs / "quick" / SETTING / "fedsam" / "seed-0", CPU).path
    about = dict(RunDirectory(first).provenance)
    about["code"] = {**about["code"], "fingerprint": "0123456789abcdef"}  # so that the run itself is not taken
    about |= {"device": {"device": "NVIDIA H100"}, "identity": {"identity": "0" * 16}}.get(change, {})
    if change == "threads":
        about["engine_at_start"]["threads"] = torch.get_num_threads() + 1
    if change == "damaged":
        about["engine_at_start"] = {"backend": "fast"}
    write_checked_json(first / "provenance.json", about)
    if change == "missing":
        (first / "provenance.json").unlink()
    with home(tmp_path / "other", LOOP, config):
        again = train(config, runs / "again" / SETTING / "fedsam" / "seed-0", CPU, replace=True)
    assert engine_lines(again.path)[-1] == "loop, channels-last, 1 thread"


def test_seeds_that_began_in_different_ways_go_on_so(tmp_path):
    """And a seed that has not begun takes the choice of another one."""
    configs = cell().runs
    alone = {}
    for config, choice in zip(configs, (COHORT, LOOP, COHORT), strict=True):
        with home(tmp_path / f"home-{config.seed}", choice, config):
            alone[config.seed] = train(config, tmp_path / f"alone-{config.seed}", CPU)
            if config.seed < 2:
                with killed_in_round(2):
                    train(config, tmp_path / f"killed-{config.seed}", CPU)
    with home(tmp_path / "other", LOOP, *configs):
        resumed = train_runs(configs, [tmp_path / f"killed-{config.seed}" for config in configs], CPU)
    for config, run in zip(configs, resumed, strict=True):
        assert contents(run.path) == contents(alone[config.seed].path)
    assert [run.provenance["engine_at_start"]["backend"] for run in resumed] == ["cohort", "loop", "cohort"]
    assert [run.provenance["engine"]["together"] for run in resumed] == [True, False, True]


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b'{"device": 3, "choice": {"backend": "loop"}}', b"\xff"])
def test_a_damaged_record_of_an_unfinished_run_is_measured_anew(damage, tmp_path):
    config = cell(**{"engine.checkpoint_seconds": 600}).runs[0]
    with home(tmp_path / "one", COHORT, config), killed_in_round(1):
        train(config, tmp_path / "run", CPU)
    [record] = tmp_path.glob("run.partial-*/engine.json")
    record.write_bytes(damage)
    with home(tmp_path / "other", LOOP, config):
        assert train(config, tmp_path / "run", CPU).provenance["engine"] == LOOP.as_json()


def failing_from(number: int):
    """Training in cohorts that is not possible from this round on."""
    train_cohort = Cohort.train

    def train_or_fail(self, local, works, probe=None):
        if works[0].round >= number:
            raise CannotBatchError("a branch")
        return train_cohort(self, local, works, probe)

    return train_or_fail


def test_what_cannot_be_batched_later_ends_no_resumed_run(tmp_path, monkeypatch):
    """The seeds go on by the loop, as they would have without a kill."""
    configs = cell().runs[:2]
    killed, undisturbed = ([tmp_path / name / f"seed-{k}" for k in range(2)] for name in ("killed", "undisturbed"))
    monkeypatch.setattr(Cohort, "train", failing_from(2))
    with home(tmp_path / "home", COHORT, *configs):
        train_runs(configs, undisturbed, CPU)
        with killed_in_round(3):
            train_runs(configs, killed, CPU)
        with killed_in_round(2):
            train_runs(configs, [folder.with_name(f"2-{folder.name}") for folder in killed], CPU)
        train_runs(configs, killed, CPU)
        train_runs(configs, [folder.with_name(f"2-{folder.name}") for folder in killed], CPU)
    for folder, expected in zip(killed, undisturbed, strict=True):
        assert contents(folder) == contents(folder.with_name(f"2-{folder.name}")) == contents(expected)


def test_a_fixed_back_end_is_used_by_all_seeds_that_have_not_begun(tmp_path):
    first = cell().runs[0]
    with home(tmp_path / "home", COHORT, first):
        with killed_in_round(2):
            train(first, tmp_path / "seed-0", CPU)
        fixed = cell(**{"engine.backend": "loop"}).runs[:2]
        runs = train_runs(fixed, [tmp_path / "seed-0", tmp_path / "seed-1"], CPU)
    assert [run.provenance["engine"]["backend"] for run in runs] == ["cohort", "loop"]


def test_a_kill_between_two_publications_leaves_nothing_to_compute(tmp_path, monkeypatch):
    """Else the other seeds would compute the last rounds in a smaller company, which changes bits on a GPU."""
    configs = cell(**{"engine.checkpoint_seconds": 600}).runs[:2]
    folders = [tmp_path / f"seed-{k}" for k in range(2)]
    with home(tmp_path / "home", COHORT, *configs):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("fedflat.bench.training.train.remove_stale", keyboard_interrupt)
            train_runs(configs, folders, CPU)
        assert [folder.exists() for folder in folders] == [True, False]
        train_runs(configs, folders, CPU)
    assert "resumed after round 5" in (folders[1] / "run.log").read_text(encoding="utf-8")


def keyboard_interrupt(*_):
    raise KeyboardInterrupt


def test_threads_without_a_client_count_as_time():
    setup = RunSetup.build(cell().runs[0], CPU)
    measured = _Calibration(setup, setup.federation.start(setup.objective.initial()))
    times = [measured._idle(EngineChoice("parallel", threads=threads)) for threads in (1, 2, 3, 4)]
    assert times == [1, 1, 6 / 4, 1], "4 clients per round"
    assert measured._idle(COHORT) == 1


@pytest.mark.parametrize("backend", ["loop", "parallel", "cohort"])
def test_a_fixed_back_end_leaves_nothing_to_measure(backend, tmp_path, monkeypatch):
    """So it does not depend on what is stored, or on where that is."""
    config = cell(**{"engine.backend": backend}).runs[0]
    setup = RunSetup.build(config, CPU)
    monkeypatch.setattr(_Calibration, "_time", lambda *_: pytest.fail("timed"))
    with home(tmp_path / "home", None):
        choice = choose_engine(setup, setup.federation.start(setup.objective.initial()), pytest.fail)
    assert choice == EngineChoice(backend) == unmeasured(setup)
    assert not (tmp_path / "home").exists(), "nothing is stored"


def test_a_fixed_memory_format_is_part_of_the_choice():
    config = cell(**{"engine.backend": "loop", "engine.layout": "channels_last"}).runs[0]
    assert LOOP.agrees_with(config.engine)
    assert not EngineChoice("loop").agrees_with(config.engine)
    assert not COHORT.agrees_with(config.engine)
    grouped = cell(**{"engine.convolution": "grouped"}).runs[0].engine
    assert COHORT.agrees_with(grouped)
    assert LOOP.agrees_with(grouped)
    assert not EngineChoice("cohort", im2col=True).agrees_with(grouped)


# --- What killed processes leave


def test_what_can_no_longer_be_resumed_is_removed_when_the_new_run_is_finished(tmp_path):
    """Not before, and no complete runs."""
    old, ended, new = (cell(**{"training.rounds": rounds}).runs[0] for rounds in (9, 7, 5))
    for config in (old, ended):
        with killed_in_round(2):
            train(config, tmp_path / "run", CPU)
    others = sorted(tmp_path.iterdir())
    assert len(others) == 2
    complete = working_directory(tmp_path / "run", ended)
    (complete / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / ".run.replaced-1").mkdir()
    (tmp_path / "run-1.partial-0").mkdir()
    with killed_in_round(2):
        train(new, tmp_path / "run", CPU)
    assert set(others) < set(tmp_path.iterdir()), "the old ones are still there"
    finished = train(new, tmp_path / "run", CPU)
    assert set(tmp_path.iterdir()) == {finished.path, complete, tmp_path / "run-1.partial-0"}
    said = (finished.path / "run.log").read_text(encoding="utf-8").splitlines()
    removed = [line.split(" removed ")[1] for line in said if " removed " in line]
    [gone] = set(others) - {complete}
    assert removed == [
        f"'{folder}', left by a killed process of another configuration or other code"
        for folder in (tmp_path / ".run.replaced-1", gone)
    ]


def test_the_lock_of_a_process_that_was_killed_after_the_run_was_published_is_removed(tmp_path):
    config = cell().runs[0]
    finished = train(config, tmp_path / "run", CPU)
    (tmp_path / ".run.lock").touch()
    with killed_in_round(2):
        train(cell(**{"training.rounds": 9}).runs[0], tmp_path / "other", CPU)
    others = set(tmp_path.glob("other*"))
    train(config, tmp_path / "run", CPU)
    assert set(tmp_path.iterdir()) == {finished.path, *others}


def test_what_cannot_be_removed_is_said(tmp_path, monkeypatch):
    (tmp_path / "run.partial-0").mkdir()

    def refuse(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    said = []
    remove_stale(tmp_path / "run", said.append)
    assert said == [f"cannot remove '{tmp_path / 'run.partial-0'}': Permission denied"]


def test_slots_of_a_run_without_a_checkpoint_are_removed(tmp_path):
    config = cell("scaffold", **{"engine.checkpoint_seconds": 600}).runs[0]
    with killed_in_round(1):
        train(config, tmp_path / "run", CPU)
    [work] = tmp_path.iterdir()
    (work / "clients.slots").write_bytes(os.urandom(10**6))
    with killed_in_round(1):
        train(config, tmp_path / "run", CPU)
    assert not (work / "clients.slots").exists()
