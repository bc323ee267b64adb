"""Nothing in a round waits for the device: every method, by every back end, without a GPU."""

import pytest
import torch

from fedflat.bench.engine.backends.branches import Branches
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.batches import EpochBatches
from fedflat.bench.engine.federation import Measurements
from fedflat.bench.engine.local import LocalWork
from fedflat.bench.engine.method_costs import example
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.methods.base import Correction, Perturbation
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.recipe import Components, Recipe
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.run_setup import RunSetup
from tests.bench.engine.rounds_of_backends import VARIANTS
from tests.never_waits import DEVICE, HostWaitsError, NeverWaits, never_waits
from tests.problems import Problem, train
from tests.tiers import in_turn, thorough

pytestmark = pytest.mark.long

ROUNDS = [[0, 1], [1, 2], [0, 2, 3]]
"""New clients and old ones, of unequal size, and another number of them."""


class Uncaptured(Graph):
    """Steps as they are captured, but called each time; nothing may be sent to the device within one."""

    def __init__(self) -> None:
        super().__init__(capture=self._call)
        self.mode: NeverWaits | None = None
        self.captured = 0

    def _call(self, function):
        before = self.mode.transfers
        values = function()
        assert self.mode.transfers == before
        self.captured += 1
        return values, lambda: None


class UncapturedBranches(Uncaptured, Branches):
    """The same for a branch per client."""


BACKENDS = [Loop, Cohort, Uncaptured, UncapturedBranches]
WAYS = [(backend,) for backend in BACKENDS]


def play(backend, federation, rounds, monkeypatch):
    """Rounds as `CellTrainer` has them, up to the measurements' transfer to the host."""
    objective = federation.objective
    objective._separable = federation.method.loss.separable  # tested once per run, on numbers
    state = federation.start(objective.initial())
    with never_waits(monkeypatch) as mode:
        backend.mode = mode
        works = federation.work(state, rounds[0])
        for after in [*rounds[1:], None]:
            results = backend.train(federation.local, works)
            state, measured = federation.aggregate(state, works, results)
            if after is not None:
                works = federation.work(state, after)
                backend.prepare(federation.local, works)
    assert state.w.device == DEVICE
    assert all(v.device == DEVICE for v in measured.values.values() if isinstance(v, torch.Tensor))
    return mode


def federation_of(method, plan="epochs", **options):
    recipe = CATALOG[method] if isinstance(method, str) else method
    settings = {"clip": 2.0, "weight_decay": 0.01, "local_momentum": 0.9, **options}
    federation = Problem(1).federation(recipe, example(recipe), device=DEVICE, **settings)
    if plan == "epochs":
        federation.batch_sampler = EpochBatches(federation.batch_sampler.split, 2, 6, seed=3)
    return federation


def check(backend, federation, monkeypatch):
    own = backend()
    play(own, federation, ROUNDS, monkeypatch)
    if issubclass(backend, Uncaptured) and federation.method.loss.separable:
        assert own.captured > 2


@pytest.mark.parametrize(("method", "backend"), in_turn(*WAYS))
def test_the_host_never_waits(method, backend, monkeypatch):
    check(backend, federation_of(method), monkeypatch)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", ["fedsmoo", "mimelite", "fedrcl"])
def test_nor_for_whole_batches(method, backend, monkeypatch):
    """Of other sizes, for every way in which a method uses them: steps, the full gradient, a loss of its own."""
    check(backend, federation_of(method, "full"), monkeypatch)


@pytest.mark.parametrize(("name", "backend"), in_turn(*WAYS, names=VARIANTS, quick=[*VARIANTS]))
def test_nor_in_variants_of_methods(name, backend, monkeypatch):
    method, values = VARIANTS[name]
    federation = Problem(1).federation(method, example(CATALOG[method]) | values, device=DEVICE)
    play(backend(), federation, ROUNDS, monkeypatch)


NETWORKS = {
    "augmented": {"training.augmentation": ["standard", {"name": "cutout", "size": 3}]},
    "mixed-up": {"training.augmentation": ["fl_simulator", "mixup"]},
    "dropout": {"model": "cnn_emnist"},
}
OF_NETWORKS = [[0, 1], [1, 2]]


def network(method, changes) -> RunSetup:
    """A run on digits, with one epoch of a few steps."""
    cell = load_experiment("quick_all", {"training.local_epochs": 1, **changes}).cell
    return RunSetup.build(cell(f"digits/dirichlet-0.1/4-of-20/{method}").runs[0], DEVICE)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("changes", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("method", [pytest.param("fedsam", marks=thorough), "mimelite"])
def test_nor_for_augmentations_and_dropout(method, changes, backend, monkeypatch):
    play(backend(), network(method, changes).federation, OF_NETWORKS, monkeypatch)


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_nor_for_convolutions_as_matrix_products(backend, monkeypatch):
    setup = network("fedsam", {})
    setup.objective.im2col = True
    play(backend(), setup.federation, OF_NETWORKS, monkeypatch)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_sent_to_the_device_is_sent_at_once(backend, monkeypatch):
    """A cohort's inputs in one transfer per round, a loop's in one per client; the server's numbers in another."""
    mode = play(backend(), federation_of("fedsmoo"), ROUNDS, monkeypatch)
    clients = sum(map(len, ROUNDS))
    assert mode.transfers == len(ROUNDS) + (clients if backend is Loop else len(ROUNDS))


# --- What the modes find


class Looks(Perturbation):
    name = "looks"

    def delta(self, w, gradient, client):
        g = gradient(w)
        return g if bool(g.norm() > 1) else -g


class Constant(Correction):
    name = "constant"

    def direction(self, g, w, client):
        return g * w.new_tensor(0.5)


class FromTheHost(Correction):
    name = "from the host"

    def direction(self, g, w, client):
        return g * torch.ones(len(g), dtype=g.dtype)


class Copied(Correction):
    name = "copied"

    def direction(self, g, w, client):
        return g * torch.ones(len(g), dtype=g.dtype).to(g.device)


class CopiedFromPageableMemory(Correction):
    name = "copied from pageable memory"

    def direction(self, g, w, client):
        return g * torch.ones(len(g), dtype=g.dtype).to(g.device, non_blocking=True)


class ToTheHost(Correction):
    name = "to the host"

    def direction(self, g, w, client):
        return g * float(g.norm())


class Selects(Correction):
    name = "selects"

    def direction(self, g, w, client):
        return g * g[g > 0].sum()


WAITS = {
    Looks: "needs numbers of the device",
    Constant: "copies numbers to the device",
    FromTheHost: "device",
    Copied: "waits for the device before it copies",
    CopiedFromPageableMemory: "not page-locked",
    ToTheHost: "needs numbers of the device",
    Selects: "needs numbers of the device",
}


@pytest.mark.parametrize(("component", "message"), WAITS.items(), ids=lambda value: getattr(value, "name", ""))
def test_waiting_and_mixed_devices_are_found(component, message, monkeypatch):
    parts = Components(component) if issubclass(component, Perturbation) else Components(correction=component)
    with pytest.raises((HostWaitsError, RuntimeError, NotImplementedError), match=message):
        play(Loop(), federation_of(Recipe("own", "Own", "a test", parts)), ROUNDS, monkeypatch)


# --- The next round is prepared while a GPU computes this one


def three_rounds(backend, monkeypatch, *, prepared, **changes):
    """A run's configuration; with `prepared`, a CPU prepares the next round as if it were a GPU."""
    changes |= {"training.rounds": 3, "engine.backend": backend, "training.augmentation": "standard"}
    monkeypatch.setattr("fedflat.bench.training.choices.choose_engine", lambda *_: EngineChoice(backend))
    if prepared:
        monkeypatch.setattr("fedflat.bench.training.cell_trainer.PREPARING", ("cpu",))
    return load_experiment("quick_all", changes).cell("digits/dirichlet-0.1/4-of-20/fedsmoo").runs[0]


@pytest.mark.parametrize("backend", ["loop", "cohort"])
def test_the_next_round_is_prepared_before_the_measurements_are_read_but_not_on_a_cpu(backend, tmp_path, monkeypatch):
    order, read, batches, works = [], Measurements.numbers, LocalWork.host_batches, RunSetup.work

    def numbers(self):
        order.append("read")
        return read(self)

    def work(self, state):
        order.append(f"work {state.round}")
        return works(self, state)

    def host_batches(self, augment, purpose):
        if order[-1:] != [f"draw {self.round}"]:
            order.append(f"draw {self.round}")
        return batches(self, augment, purpose)

    with monkeypatch.context() as patch:
        patch.setattr(Measurements, "numbers", numbers)
        patch.setattr(RunSetup, "work", work)
        patch.setattr(LocalWork, "host_batches", host_batches)
        plain = train(three_rounds(backend, patch, prepared=False), tmp_path / "plain", torch.device("cpu"))
        assert order == ["work 0", "draw 0", "read", "work 1", "draw 1", "read", "work 2", "draw 2", "read"]
        order.clear()
        prepared = train(three_rounds(backend, patch, prepared=True), tmp_path / "prepared", torch.device("cpu"))
        assert order == ["work 0", "draw 0", "work 1", "draw 1", "read", "work 2", "draw 2", "read", "read"]
    for name in ("final.safetensors", "metrics.csv"):
        assert (prepared.path / name).read_bytes() == (plain.path / name).read_bytes()


class PreparationFailsError(Exception):
    pass


@pytest.mark.parametrize("part", ["work", "host_batches"])
@pytest.mark.parametrize("backend", ["loop", "cohort"])
def test_an_error_of_the_preparation_is_raised_by_the_round_that_needs_it(backend, part, tmp_path, monkeypatch):
    """Once only, so that computing it anew would hide it; the round before is finished and in the checkpoint."""
    owner = RunSetup if part == "work" else LocalWork
    compute, failed = getattr(owner, part), []

    def failing(self, *given):
        if (given[0] if part == "work" else self).round == 1 and not failed:
            failed.append(part)
            raise PreparationFailsError
        return compute(self, *given)

    config = three_rounds(backend, monkeypatch, prepared=True, **{"engine.checkpoint_seconds": 0})
    with monkeypatch.context() as patch:
        patch.setattr(owner, part, failing)
        with pytest.raises(PreparationFailsError):
            train(config, tmp_path / "run", torch.device("cpu"))
    resumed = train(config, tmp_path / "run", torch.device("cpu"))
    whole = train(config, tmp_path / "whole", torch.device("cpu"))
    assert "resumed after round 1" in (resumed.path / "run.log").read_text(encoding="utf-8")
    assert (resumed.path / "final.safetensors").read_bytes() == (whole.path / "final.safetensors").read_bytes()


def test_an_error_of_a_preparation_that_no_round_needs_is_not_raised(tmp_path, monkeypatch):
    """A run that stops early does not begin the round that was prepared."""
    config = three_rounds("loop", monkeypatch, prepared=True, **{"evaluation.until": 0.1})
    compute = RunSetup.work

    def failing(self, state):
        if state.round == 2:
            raise PreparationFailsError
        return compute(self, state)

    monkeypatch.setattr(RunSetup, "work", failing)
    run = train(config, tmp_path / "run", torch.device("cpu"))
    assert run.metrics()["round"].tolist() == [1, 2]


@pytest.mark.parametrize("backend", [Loop, Cohort])
def test_what_was_prepared_for_other_clients_is_not_used(backend):
    federation = Problem(1).federation("fedsmoo", example(CATALOG["fedsmoo"]))
    state = federation.start(federation.objective.initial())
    prepared, used = backend(), federation.work(state, [2, 3])
    prepared.prepare(federation.local, federation.work(state, [0, 1]))
    results, expected = (one.train(federation.local, used) for one in (prepared, backend()))
    assert all(torch.equal(a.w, b.w) for a, b in zip(results, expected, strict=True))
