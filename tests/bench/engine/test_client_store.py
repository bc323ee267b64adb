"""Client states are the same bits wherever they lie, and cost memory for participants alone."""

import gc
import itertools
import resource
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedflat.bench.data.dataset import DeviceData
from fedflat.bench.engine.batches import StepBatches
from fedflat.bench.engine.client_store import ClientStates, ClientStore
from fedflat.bench.engine.federation import Federation, StepSettings
from fedflat.bench.engine.method_costs import example
from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.participation import Participation, active_clients
from fedflat.bench.host.memory import Budgets
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.catalog import CATALOG, recipe
from fedflat.bench.models.architectures.lenet import LeNet
from tests.bench.engine.rounds_of_backends import bits
from tests.bench.training.small_runs import config, contents
from tests.problems import Problem, train
from tests.tiers import METHODS

CPU = torch.device("cpu")
IN_FILE = Budgets(device=0, host=0)


def places(clients: ClientStates) -> set[str]:
    return {"file" if entry.pooled is None else "memory" for entry in clients.stored.values()}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_same_bits_in_memory_in_the_file_and_in_both(method, tmp_path):
    problem = Problem(7)
    federation = problem.federation(method, example(CATALOG[method]))
    w0 = federation.objective.initial()
    unlimited = federation.start(w0)
    for active in problem.some():
        unlimited, _ = federation.run_round(unlimited, active)
    size = sum(v.nbytes for v in next(iter(unlimited.clients.values()), {}).values())
    for name, budget, expected in (("file", 0, {"file"}), ("mixed", 2.5 * size, {"file", "memory"})):
        state = federation.start(w0)
        state.clients = ClientStates(ClientStore(tmp_path / name, Budgets(host=budget)))
        for active in problem.some():
            state, _ = federation.run_round(state, active)
        assert torch.equal(state.w, unlimited.w)
        assert bits(state.server) == bits(unlimited.server)
        assert {i: bits(v) for i, v in state.clients.items()} == {i: bits(v) for i, v in unlimited.clients.items()}
        if size:
            assert places(state.clients) == expected
        else:
            assert not (tmp_path / name).exists(), "no state, no file"


@pytest.mark.parametrize("method", ["fedlesam_s", "adabest"])
def test_runs_are_bitwise_equal_in_all_placements(method, tmp_path):
    """Snapshots, which hold all client states, included."""
    runs = {
        name: train(config(method), tmp_path / name, CPU, budgets=budgets)
        for name, budgets in (("memory", Budgets()), ("file", IN_FILE), ("mixed", Budgets(host=50_000)))
    }
    assert contents(runs["memory"].path) == contents(runs["file"].path) == contents(runs["mixed"].path)
    said = {
        name: (run.path / "run.log").read_text(encoding="utf-8").partition("states of ")[2].split()
        for name, run in runs.items()
    }
    in_memory = {name: int(words[2]) for name, words in said.items()}
    assert in_memory["memory"] == int(said["memory"][0]) > in_memory["mixed"] > in_memory["file"] == 0
    about = runs["file"].snapshot(6, CPU)
    assert len(about.clients) > 4
    assert places(about.clients) == {"memory"}


@pytest.mark.gpu
@pytest.mark.parametrize(
    "budgets", [Budgets(device=0), IN_FILE, Budgets(device=50_000), Budgets(device=30_000, host=30_000)], ids=str
)
def test_runs_on_a_gpu_are_bitwise_equal_in_all_placements(budgets, tmp_path):
    device = prepare_device("cuda", 1)
    on_device = train(config(), tmp_path / "device", device, budgets=Budgets())
    placed = train(config(), tmp_path / "placed", device, budgets=budgets)
    assert contents(placed.path) == contents(on_device.path)


@pytest.mark.gpu
def test_vectors_of_a_gpu_go_to_page_locked_memory_and_then_to_the_file(tmp_path):
    store = ClientStore(tmp_path / "slots", Budgets(device=100, host=100))
    vectors = {i: {"v": torch.full((20,), float(i), device="cuda")} for i in range(3)}
    clients = ClientStates(store).updated(vectors)
    stored = [entry.pooled and entry.pooled.vectors["v"] for entry in clients.stored.values()]
    assert [v and (v.device.type, v.is_pinned()) for v in stored] == [("cuda", False), ("cpu", True), None]
    store.persist(clients.stored.values())
    for i, expected in vectors.items():
        assert clients[i]["v"].device.type == "cuda"
        assert torch.equal(clients[i]["v"], expected["v"])


ODD = {
    "zero-dimensional": torch.tensor(0.1, dtype=torch.float64),
    "empty": torch.zeros(0, 3),
    "flag": torch.tensor([True, False, True]),
    "halves": torch.tensor([[1.5], [float("nan")]], dtype=torch.bfloat16),
    "count": torch.arange(5),
    "strided": torch.arange(12.0).view(3, 4).t(),
    "infinite": torch.tensor([float("inf"), -0.0, float("nan")]),
}


def test_all_shapes_and_number_formats_come_back(tmp_path):
    clients = ClientStates(ClientStore(tmp_path / "slots", IN_FILE)).updated({3: ODD})
    assert places(clients) == {"file"}
    assert bits(clients[3]) == bits(ODD)


def test_what_was_read_stays_when_its_slot_is_used_again(tmp_path):
    clients = ClientStates(ClientStore(tmp_path / "slots", IN_FILE)).updated({0: {"H": torch.ones(1000)}})
    read = clients[0]["H"]
    for k in range(10):
        clients = clients.updated({0: {"H": torch.full((1000,), float(k))}})
    assert torch.equal(read, torch.ones(1000))


def test_a_row_does_not_keep_its_matrix_alive():
    """States of a cohort are rows of one tensor: a client that idles must not keep those of all others."""
    clients = ClientStates().updated({i: {"v": row} for i, row in enumerate(torch.zeros(1000, 10))})
    assert clients[5]["v"].untyped_storage().nbytes() == 40


@pytest.mark.parametrize("store", ["memory", "file"])
@pytest.mark.parametrize("other", [{"H": torch.zeros(3)}, {"h": torch.zeros(2)}, {"H": torch.zeros(2).double()}])
def test_a_state_of_another_kind_is_one_line(other, store, tmp_path):
    clients = ClientStates(ClientStore(tmp_path / "slots", IN_FILE) if store == "file" else None)
    clients = clients.updated({0: {"H": torch.zeros(2)}})
    with pytest.raises(
        UserError, match=r"client 4 has the state .*, but other clients have H \[2\] float32: .* must be the same"
    ) as error:
        clients.updated({4: other})
    assert "\n" not in str(error.value)


def test_a_full_disk_is_one_line(tmp_path):
    """Not the bus error that a write into a mapped hole would be: space is reserved for all that is mapped."""
    clients = ClientStates(ClientStore(tmp_path / "slots", IN_FILE)).updated({9: {"H": torch.zeros(10_000)}})
    stat = (tmp_path / "slots").stat()
    assert stat.st_blocks * 512 >= stat.st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(UserError, match=r"cannot write '.*slots': File too large"):
            clients.updated({i: {"H": torch.zeros(10_000)} for i in range(9)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Versions:
    """Versions of one store's client states, each with its expected content."""

    def __init__(self, store: ClientStore) -> None:
        self.store = store
        self.live = [(ClientStates(store), {})]
        self.most_taken = 0

    def update(self, k: int, changed: dict[int, dict[str, torch.Tensor]]) -> None:
        clients, expected = self.live[k]
        self.live.append((clients.updated(changed), expected | {i: bits(v) for i, v in changed.items()}))

    def drop(self, k: int) -> None:
        if len(self.live) > 1:
            del self.live[k]

    def persist(self, k: int) -> None:
        clients = self.live[k][0]
        assert len({slot.number for slot in self.store.persist(clients.stored.values())}) == len(clients)

    def check(self) -> None:
        for clients, expected in self.live:
            assert {i: bits(v) for i, v in clients.items()} == expected
        entries = {id(entry): entry for clients, _ in self.live for entry in clients.stored.values()}.values()
        in_memory = sum(v.nbytes for entry in entries if entry.pooled for v in entry.pooled.vectors.values())
        assert in_memory <= self.store._pools[0].budget if entries else in_memory == 0
        taken = sum(entry.slot is not None for entry in entries)
        self.most_taken = max(self.most_taken, taken)
        if (file := self.store._file) is not None:
            assert len(file.rows) - len(file.free) == taken, "a slot is free when no version refers to it, not before"
            assert len(file.rows) <= self.most_taken + max(4, self.most_taken / 4)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), budget=st.sampled_from([0, 64, 200]))
def test_every_version_reads_what_was_put_in_and_slots_are_used_again(data, budget):
    """Any tree of updates, whose versions are dropped and checkpointed in any order."""
    with TemporaryDirectory() as folder:
        versions = Versions(ClientStore(Path(folder) / "slots", Budgets(host=budget)))
        values = itertools.count()
        for _ in range(data.draw(st.integers(1, 25))):
            k = data.draw(st.integers(0, len(versions.live) - 1))
            match data.draw(st.sampled_from(["update", "update", "drop", "persist"])):
                case "update":
                    clients = data.draw(st.sets(st.integers(0, 7), max_size=4))
                    versions.update(k, {i: {"a": torch.tensor([next(values)]), "b": torch.arange(3)} for i in clients})
                case "drop":
                    versions.drop(k)
                case "persist":
                    versions.persist(k)
            versions.check()
        versions.live.clear()
        assert all(pool.used == 0 for pool in versions.store._pools)


def tensor_bytes() -> int:
    """Bytes of all tensors of this process that are alive, what waits for the garbage collector included."""
    storages = (v.untyped_storage() for v in gc.get_objects() if issubclass(type(v), torch.Tensor))
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@pytest.mark.parametrize("place", ["memory", "file"])
def test_memory_of_100_000_registered_clients_grows_with_those_that_took_part(place, tmp_path):
    """SCAFFOLD with LeNet, one step on one image a round: a c_i of 3.2 MB per participant, or nothing at all."""
    registered = 100_000
    images = torch.arange(16 * 3 * 32 * 32).view(16, 3, 32, 32).mul(7).remainder(256).to(torch.uint8)
    data = DeviceData(images, torch.arange(16) % 10, torch.tensor(127.0), torch.tensor(1 / 64))
    split = list(np.arange(16).repeat(registered // 16)[:, None])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        objective = Objective(LeNet((3, 32, 32), 10))
    plan = StepBatches(split, steps=1, batch_size=1, seed=0)
    sizes = [1] * registered
    federation = Federation(recipe("scaffold").build({}), objective, data, plan, sizes, StepSettings(lr=0.01), 0)
    state = federation.start(objective.initial())
    state.clients = ClientStates(ClientStore(tmp_path / "slots", IN_FILE if place == "file" else Budgets()))
    size = objective.layout.total * 4
    assert size > 3_000_000
    gc.collect()
    gc.disable()
    try:
        used, known = [], []
        for _ in range(8):
            active = active_clients(Participation(active=5), registered, 0, state.round)
            state, _ = federation.run_round(state, active)
            used.append(tensor_bytes())
            known.append(len(state.clients))
    finally:
        gc.enable()
    grown = np.diff(used[2:]) / size
    joined = np.diff(known[2:]) if place == "memory" else np.zeros(5)
    assert known[-1] > 30
    assert np.abs(grown - joined).max() < 0.01, "of a model"
