"""The states of a run store each vector of the clients once, and are read with the same bits."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedflat.bench.engine.checkpoint import load_state, save_state
from fedflat.bench.engine.client_store import ClientStates
from fedflat.bench.engine.federation import FederationState
from fedflat.bench.files.checksums import DamagedFileError
from fedflat.bench.files.tensor_file import open_tensors, same_bits
from tests.bench.training.small_runs import config
from tests.problems import train

CPU = torch.device("cpu")
VALUES = [0.0, -0.0, 1.0, float("nan")]


def vectors(value: float) -> dict[str, Tensor]:
    """A client's state: a vector, and a single number, which is too small to be looked for."""
    return {"H": torch.full((300,), value), "n": torch.tensor(value)}


def saved(folder: Path, changes: list[dict[int, float]]) -> list[FederationState]:
    """States of which each changes some clients of the one before; each is saved as a file with its number."""
    states, clients = [], ClientStates()
    for number, change in enumerate(changes):
        clients = clients.updated({client: vectors(value) for client, value in change.items()})
        states.append(FederationState(number, torch.full((300,), 7.0 + number), {}, clients))
        save_state(folder / str(number), states[-1], {}, [folder / str(k) for k in range(number)])
    return states


def stored(file: Path, field: str) -> list[str]:
    """The names of the tensors of a field that are in a file."""
    with open_tensors(file, "") as tensors:
        return [name for name in tensors.names if name.endswith(f"/{field}")]


def test_states_round_trip_bitwise(tmp_path):
    shared = torch.tensor([1 / 3, torch.finfo(torch.float32).tiny])
    clients = ClientStates().updated({3: {"H": shared}, 12: {"H": -shared}})
    state = FederationState(7, shared, {"c": shared}, clients)
    save_state(tmp_path / "s.safetensors", state, {"rows": [{"x": 1 / 3}]})
    again, about = load_state(tmp_path / "s.safetensors", CPU)
    assert about["rows"] == [{"x": 1 / 3}]
    assert again.round == 7
    assert torch.equal(again.w, shared)
    assert torch.equal(again.clients[12]["H"], -shared)
    assert again.clients.keys() == {3, 12}


@given(st.lists(st.dictionaries(st.integers(0, 12), st.sampled_from(VALUES), max_size=4), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_every_bit_is_read_and_no_vector_is_stored_twice(changes):
    with TemporaryDirectory() as name:
        folder = Path(name)
        states = saved(folder, changes)
        for number, state in enumerate(states):
            again, about = load_state(folder / str(number), CPU)
            assert about == {"round": number}
            assert again.clients.keys() == state.clients.keys()
            for client, given in state.clients.items():
                assert given.keys() == again.clients[client].keys()
                assert all(same_bits(v, again.clients[client][field]) for field, v in given.items())
        used = {str(value) for change in changes for value in change.values()}
        assert sum(len(stored(folder / str(number), "H")) for number in range(len(states))) == len(used)


def test_a_run_stores_an_old_global_model_once(tmp_path):
    """FedLESAM-S: clients of one round have the same old model; two states after six rounds hold at most six."""
    run = train(config("fedlesam_s"), tmp_path / "run", CPU)
    files = sorted((run.path / "snapshots").iterdir())
    assert sum(len(stored(file, "w_old")) for file in files) <= 6
    assert len(stored(files[1], "c_i")) < len(run.snapshot(6, CPU).clients)
    assert all(len(v["w_old"]) == len(run.final(CPU).w) for v in run.snapshot(6, CPU).clients.values())


def test_a_damaged_earlier_state_is_named_and_never_referred_to(tmp_path):
    changes = [{0: 1.0, 1: 2.0}, {1: 3.0}]
    states = saved(tmp_path, changes)
    content = bytearray((tmp_path / "0").read_bytes())
    content[-3000] ^= 1  # in the vector of client 0
    (tmp_path / "0").write_bytes(content)
    with pytest.raises(DamagedFileError, match=rf"'{tmp_path}/0' is damaged \(its content does not match"):
        load_state(tmp_path / "1", CPU)
    for damaged in (bytes(content), b"", None):
        (tmp_path / "0").unlink() if damaged is None else (tmp_path / "0").write_bytes(damaged)
        save_state(tmp_path / "1", states[1], {}, [tmp_path / "0"])
        again, _ = load_state(tmp_path / "1", CPU)
        assert [float(again.clients[client]["H"][0]) for client in (0, 1)] == [1.0, 3.0]


def test_only_the_last_states_before_one_are_searched(tmp_path, monkeypatch):
    """Each state of the files that are searched costs time, and a run may store a state after each round."""
    monkeypatch.setattr("fedflat.bench.training.training_run.EARLIER_STATES", 2)
    run = train(config("scaffold", **{"evaluation.snapshot_every": 1}), tmp_path / "run", CPU)
    for number, file in enumerate(sorted((run.path / "snapshots").iterdir()), start=1):
        with open_tensors(file, "") as tensors:
            places = json.loads(tensors.metadata["about"]).get("repeated", {}).values()
        files = {name for name, _ in places} - {file.name}
        assert files <= {f"round-{number - before:05d}.safetensors" for before in (1, 2)}
        assert (number > 1) == bool(files)
        assert run.snapshot(number, CPU).round == number
