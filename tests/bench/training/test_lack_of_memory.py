"""A run whose memory does not suffice goes on with fewer clients at once, then with the loop, and can be resumed so."""

import pytest
import torch

from fedflat.bench.engine.backends import BACKENDS
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.groups import Groups
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.method_costs import example
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.train import train_runs
from tests.bench.engine.rounds_of_backends import close
from tests.bench.training.small_runs import killed_in_round
from tests.bench.training.test_engine_choice import engine_lines
from tests.problems import Problem, train

CPU = torch.device("cpu")


def config(**changes):
    given = {"training.rounds": 4, "engine.checkpoint_seconds": 0, "grid.participation": [{"active": 10}], **changes}
    return load_experiment("quick_all", given).cell("digits/dirichlet-0.1/10-of-20/fedsmoo")


def limited(room: int, monkeypatch, first_round: int = 0) -> list[int]:
    """From a round on, cohorts have no memory for more than `room` clients; the numbers of clients that were tried."""
    tried: list[int] = []

    class Limited(Cohort):
        def train(self, local, works, probe=None):
            tried.append(len(works))
            if len(works) > room and works[0].round >= first_round:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")
            return super().train(local, works, probe)

    monkeypatch.setitem(BACKENDS, "cohort", Limited)
    monkeypatch.setattr("fedflat.bench.training.choices.choose_engine", lambda *_: EngineChoice("cohort"))
    return tried


def test_fewer_clients_at_once(tmp_path, monkeypatch):
    tried = limited(3, monkeypatch, first_round=1)
    run = train(config().runs[0], tmp_path / "run", CPU)
    assert tried == [10, 10, 5, *[3, 3, 3, 1] * 3]
    assert engine_lines(run.path) == [
        "cohort, 1 thread",
        "not enough memory: CUDA out of memory",
        "cohort, at most 5 clients at once, 1 thread",
        "not enough memory: CUDA out of memory",
        "cohort, at most 3 clients at once, 1 thread",
    ]
    assert run.provenance["engine"]["most_rows"] == 3
    assert len(run.metrics()) == 4


def test_then_the_loop(tmp_path, monkeypatch):
    tried = limited(1, monkeypatch)
    run = train(config().runs[0], tmp_path / "run", CPU)
    assert tried == [10, 5, 3, 2]
    assert engine_lines(run.path)[-1] == "loop, 1 thread"
    assert run.provenance["engine"] == EngineChoice("loop").as_json()


def test_not_the_loop_if_a_cohort_is_requested(tmp_path, monkeypatch):
    limited(1, monkeypatch)
    with pytest.raises(UserError, match=r"engine\.backend cohort is not possible here: not enough memory: CUDA out of"):
        train(config(**{"engine.backend": "cohort"}).runs[0], tmp_path / "run", CPU)


def test_nothing_is_left_after_the_loop(tmp_path, monkeypatch):
    class NoMemory(Loop):
        def train(self, local, works, probe=None):
            raise torch.OutOfMemoryError("CUDA out of memory.")

    limited(1, monkeypatch)
    monkeypatch.setitem(BACKENDS, "loop", NoMemory)
    with pytest.raises(torch.OutOfMemoryError):
        train(config().runs[0], tmp_path / "run", CPU)


def test_seeds_together_and_a_resumed_run(tmp_path, monkeypatch):
    """After an interruption, cohorts are as small as before: the choice is in the checkpoint."""
    limited(7, monkeypatch, first_round=1)
    monkeypatch.setattr("fedflat.bench.training.choices.train_together", lambda setups, *others: len(setups) > 1)
    runs = config(**{"engine.seeds": "together"}).runs
    whole = train_runs(runs, [tmp_path / f"whole-{run.seed}" for run in runs], CPU)
    assert whole[0].provenance["engine"]["most_rows"] == 4
    folders = [tmp_path / f"resumed-{run.seed}" for run in runs]
    with killed_in_round(3):
        train_runs(runs, folders, CPU)
    tried = limited(7, monkeypatch, first_round=1)
    resumed = train_runs(runs, folders, CPU)
    assert set(tried) == {4, 2}
    for one, other in zip(whole, resumed, strict=True):
        assert (one.path / "final.safetensors").read_bytes() == (other.path / "final.safetensors").read_bytes()


@pytest.mark.parametrize("backend", [Loop, Cohort])
@pytest.mark.parametrize("rows", [1, 2, 3, 9])
def test_groups_follow_the_loop(backend, rows):
    federation = Problem(1).federation("fedsmoo", example(CATALOG["fedsmoo"]), local_momentum=0.9)
    loop = other = federation.start(federation.objective.initial())
    groups = Groups(backend(), rows)
    for active in ([0, 1, 2, 3], [1, 2], [0, 1, 3]):
        groups.prepare(federation.local, federation.work(other, active))
        loop, _ = federation.run_round(loop, active)
        other, _ = federation.run_round(other, active, backend=groups)
    close(loop, other)


def test_choices_of_earlier_checkpoints_are_read():
    stored = {"backend": "cohort", "together": True, "threads": 2, "channels_last": False}
    assert EngineChoice.from_json(stored) == EngineChoice("cohort", together=True, threads=2)
    new = EngineChoice("graph", most_rows=8)
    assert EngineChoice.from_json(new.as_json()) == new
    for wrong in ({}, {**stored, "more": 1}, {"most_rows": 3}, {**stored, "backend": "none"}, [], None):
        with pytest.raises(ValueError, match="not a choice of the engine"):
            EngineChoice.from_json(wrong)


def test_which_choice_follows():
    graph = EngineChoice("graph", threads=2)
    assert graph.simpler() == EngineChoice("cohort", threads=2)
    assert EngineChoice("cohort", most_rows=4).simpler() == EngineChoice("loop")
    assert EngineChoice("loop").simpler() is None
    assert graph.smaller(10) == EngineChoice("graph", threads=2, most_rows=5)
    assert EngineChoice("cohort", most_rows=5).smaller(30) == EngineChoice("cohort", most_rows=3)
    assert EngineChoice("cohort", most_rows=8).smaller(5) == EngineChoice("cohort", most_rows=3)
    assert EngineChoice("cohort", most_rows=2).smaller(30) == EngineChoice("loop")
    assert EngineChoice("cohort").smaller(1) == EngineChoice("loop")
    assert EngineChoice("loop").smaller(10) is None
