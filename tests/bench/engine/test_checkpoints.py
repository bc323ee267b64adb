"""Checkpoints with client states: what a kill or damage leaves is the last state, or the one before, bit by bit."""

import os
import shutil
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fedflat.bench.engine.checkpoint import Checkpoint
from fedflat.bench.engine.client_store import ClientStates, ClientStore
from fedflat.bench.engine.federation import FederationState
from fedflat.bench.engine.method_costs import example
from fedflat.bench.host.memory import Budgets
from fedflat.bench.methods.catalog import CATALOG
from tests.bench.engine.rounds_of_backends import bits, same_bits
from tests.bench.engine.test_client_store import CPU, IN_FILE
from tests.bench.training.small_runs import InterruptedRunError, config, contents, interrupted_after_three_rounds
from tests.commands import run, start
from tests.problems import Problem, train
from tests.waiting import wait_for


def trained(tmp_path, rounds: int, budgets: Budgets = IN_FILE, method: str = "fedlesam_s"):
    """A small federation after some rounds, its client states in a store, and its checkpoint."""
    problem = Problem(3, clients=6, rounds=12)
    federation = problem.federation(method, example(CATALOG[method]))
    store = ClientStore(tmp_path / "slots", budgets)
    state = federation.start(federation.objective.initial())
    state.clients = ClientStates(store)
    for active in problem.some()[:rounds]:
        state, _ = federation.run_round(state, active)
    return problem, federation, state, Checkpoint(tmp_path, store)


@pytest.mark.parametrize("budgets", [IN_FILE, Budgets(), Budgets(host=800)], ids=str)
def test_what_a_kill_leaves_at_any_time_is_the_last_checkpoint(budgets, tmp_path):
    """The files as they are after each round, and before each rename of the checkpoint, are read elsewhere; so is the
    checkpoint before the last one, if the last one is damaged."""
    problem, federation, state, checkpoint = trained(tmp_path, 2, budgets)
    saved = []

    def check() -> None:
        for damaged in range(min(len(saved), 2)):
            left = Path(shutil.copytree(tmp_path, tmp_path.with_name("left"), dirs_exist_ok=True))
            again = Checkpoint(left, ClientStore(left / "slots", budgets))
            if damaged:
                again.newest.write_bytes(flipped(again.newest.read_bytes()))
            said = []
            assert same_bits(again.load(CPU, said.append)[0], saved[-1 - damaged])
            assert len(said) == damaged
            shutil.rmtree(left)

    def in_memory(state: FederationState) -> FederationState:
        return FederationState(state.round, state.w, state.server, ClientStates().updated(dict(state.clients)))

    for active in problem.some()[2:]:
        state, _ = federation.run_round(state, active)
        check()
        if state.round % 3 == 0:
            checkpoint._store.persist(state.clients.stored.values())
            check()
            checkpoint.save(state, {})
            saved.append(in_memory(state))
            check()


def test_a_loaded_checkpoint_is_not_written_over(tmp_path):
    problem, federation, state, checkpoint = trained(tmp_path, 6)
    checkpoint.save(state, {"note": 1})
    expected = {i: bits(vectors) for i, vectors in state.clients.items()}
    again = Checkpoint(tmp_path, ClientStore(tmp_path / "slots", IN_FILE))
    state, about = again.load(CPU, pytest.fail)
    assert about["note"] == 1
    for active in problem.some()[6:]:
        state, _ = federation.run_round(state, active)
    third, _ = Checkpoint(tmp_path, ClientStore(tmp_path / "slots", IN_FILE)).load(CPU, pytest.fail)
    assert {i: bits(vectors) for i, vectors in third.clients.items()} == expected


def test_a_checkpoint_writes_what_has_changed(tmp_path):
    clients = ClientStates(ClientStore(tmp_path / "slots", Budgets()))
    clients = clients.updated({i: {"H": torch.full((10_000,), float(i))} for i in range(50)})
    checkpoint = Checkpoint(tmp_path, clients.store)

    def save(clients: ClientStates) -> dict[int, int]:
        checkpoint.save(FederationState(1, torch.zeros(10), {}, clients), {})
        table = safetensors.torch.load_file(checkpoint.newest)["clients"].tolist()
        return {client: slot for client, slot, _ in table}

    before = save(clients)
    rows = [bytes(row) for row in clients.store._file.rows]
    assert checkpoint.newest.stat().st_size < 5_000
    after = save(clients.updated({i: {"H": torch.full((10_000,), -1.0)} for i in (4, 9)}))
    assert {i for i in before if before[i] != after[i]} == {4, 9}
    written = {k for k, row in enumerate(clients.store._file.rows) if bytes(row) != rows[k]}
    assert written == {after[4], after[9]}


@pytest.mark.parametrize("budgets", [IN_FILE, Budgets(host=50_000)], ids=str)
def test_a_run_resumes_bitwise_under_another_budget(budgets, tmp_path, monkeypatch):
    undisturbed = train(config(), tmp_path / "undisturbed", CPU)
    with interrupted_after_three_rounds(monkeypatch), pytest.raises(InterruptedRunError):
        train(config(), tmp_path / "resumed", CPU, budgets=budgets)
    assert list(tmp_path.glob("resumed.partial-*/clients.slots"))
    resumed = train(config(), tmp_path / "resumed", CPU, budgets=Budgets(host=20_000))
    assert "resumed after round 3" in (resumed.path / "run.log").read_text(encoding="utf-8")
    assert contents(resumed.path) == contents(undisturbed.path)


KILLED = """
import sys, torch
from pathlib import Path
from fedflat.bench.host.memory import Budgets
from tests.problems import train
from tests.bench.training.small_runs import config
torch.set_num_threads(1)
train(config(**{"training.rounds": 40}), Path(sys.argv[1]), torch.device("cpu"), budgets=Budgets(0, 0))
"""


@pytest.mark.long
def test_kill_9_with_client_states_in_the_file(tmp_path):
    """A process is killed between two checkpoints; the same call then finishes the run, bit by bit."""
    (tmp_path / "train.py").write_text(KILLED, encoding="utf-8")
    again = ["python", str(tmp_path / "train.py")]
    assert run([*again, str(tmp_path / "undisturbed")]).returncode == 0
    killed = start([*again, str(tmp_path / "killed")], tmp_path, os.environ, [tmp_path / "printed"] * 2)
    wait_for(lambda: list(tmp_path.glob("killed.partial-*/checkpoint.safetensors")), alive=killed.is_alive)
    time.sleep(0.1)
    killed.kill()
    killed.join()
    assert list(tmp_path.glob("killed.partial-*/clients.slots"))
    assert run([*again, str(tmp_path / "killed")]).returncode == 0
    assert "resumed after round" in (tmp_path / "killed" / "run.log").read_text(encoding="utf-8")
    assert contents(tmp_path / "killed") == contents(tmp_path / "undisturbed")


DAMAGES = {
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "empty": lambda file: os.truncate(file, 0),
    "missing": lambda file: file.unlink(),
    "one bit": lambda file: file.write_bytes(flipped(file.read_bytes())),
}


def flipped(data: bytes) -> bytes:
    changed = bytearray(data)
    position = next(k for k, byte in enumerate(data) if byte)  # inside a record that is in use
    changed[position] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["clients.slots", "checkpoint.safetensors"])
def test_after_damage_the_run_goes_on_from_the_checkpoint_before_or_starts_anew(file, damage, tmp_path, monkeypatch):
    with interrupted_after_three_rounds(monkeypatch), pytest.raises(InterruptedRunError):
        train(config(), tmp_path / "run", CPU)
    [checkpoint] = tmp_path.glob("run.partial-*/checkpoint.safetensors")
    DAMAGES[damage](checkpoint.with_name(file))
    said = []
    train(config(), tmp_path / "run", CPU, progress=said.append)
    assert contents(tmp_path / "run") == contents(train(config(), tmp_path / "other", CPU).path)
    log = (tmp_path / "run" / "run.log").read_text(encoding="utf-8")
    if file == "checkpoint.safetensors":
        assert "resumed after round 2" in log
    else:
        assert "resumed after round 2" in log or log.count("started: ") == 2
    messages = [line for line in said if "is damaged" in line]
    assert messages or damage == "missing"
    assert all("\n" not in line and line.partition(": ")[2] in log for line in messages)
