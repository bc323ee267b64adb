"""Perturbation drift: by hand, at its ends, streamed as held, and of methods whose drift is known."""

import weakref
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.measures.drift import PerturbationDrift, Replay, perturbation_drift
from fedflat.bench.engine.batches import FullBatches
from fedflat.bench.engine.local import Probe
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import Gradient, norm, unit
from tests.places import MINI
from tests.problems import Problem, train

CPU = torch.device("cpu")


def vectors(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def identity(w: Tensor) -> Tensor:
    """∇F of F(w) = ½‖w‖²."""
    return w


def replay(deltas: list[Tensor], models: list[Tensor]) -> Replay:
    """Clients that make known steps: δ_i,k and w_i,k, both `[steps, P]`."""

    def show(client: int, probe: Probe) -> None:
        for step, (w, delta) in enumerate(zip(models[client], deltas[client], strict=True)):
            probe(client, step, w, delta)

    return show


def of(deltas: list[Tensor], models: list[Tensor], gradient: Gradient = identity) -> PerturbationDrift:
    return perturbation_drift(range(len(deltas)), replay(deltas, models), gradient)


def test_two_clients_one_step_by_hand() -> None:
    """Mean model (1, 0), so δ_g = (1, 0). δ_1 = (0, 2): distance √2. δ_2 = (1, 0): 0. PD = √2 / (2·2).

    Cosines 0 and 1, lengths 2 and 1, ‖∇F‖ = 1.
    """
    found = of([vectors([0, 2]), vectors([1, 0])], [vectors([1, 1]), vectors([1, -1])])
    assert found == pytest.approx((sqrt(2) / 4, 0.5, 1.5, 1))


def test_the_virtual_model_of_all_clients_by_hand() -> None:
    """Client 3 does not take part in the round, but moves the mean model from (1, 0) to (0, 1).

    δ_1 = (0, 2) is along δ_g = (0, 1), δ_2 = (-1, 0) is √2 away. For the participants alone, δ_g = (1, 0): √2 and 2.
    """
    deltas = [vectors([0, 2]), vectors([-1, 0]), vectors([9, 9])]
    show = replay(deltas, [vectors([1, 1]), vectors([1, -1]), vectors([-2, 3])])
    of_all = perturbation_drift([0, 1], show, identity, everybody=range(3))
    assert of_all == pytest.approx((sqrt(2) / 4, 0.5, 1.5, 1))
    assert perturbation_drift([0, 1], show, identity) == pytest.approx(((sqrt(2) + 2) / 4, -0.5, 1.5, 1))


def test_unequal_steps_by_hand() -> None:
    """Client 2 stops after one step.

    Step 0: mean model (2, 0), δ_g = (1, 0); distances 0 and 2. Step 1: client 1 alone at (0, 5), δ_g =
    (0, 1); its δ = (1, 0) is √2 away. Three (client, step) pairs: PD = (0 + 2 + √2) / (2·3).
    """
    found = of([vectors([1, 0], [1, 0]), vectors([-1, 0])], [vectors([1, 0], [0, 5]), vectors([3, 0])])
    assert found == pytest.approx(((2 + sqrt(2)) / 6, 0, 1, 3.5))


def test_zero_perturbation_stays_zero_and_counts_half() -> None:
    assert of([vectors([0, 0])], [vectors([1, 2])]) == pytest.approx((0.5, 0, 0, sqrt(5)))


def drawn(steps: list[int], seed: int) -> tuple[list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    models = [torch.rand(n, 6, generator=generator, dtype=torch.float64) + 0.1 for n in steps]
    return [torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in steps], models


unequal = given(
    steps=st.lists(st.integers(1, 4), min_size=1, max_size=4), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 1000)
)


@unequal
def test_ends_range_and_scale(steps: list[int], scale: float, seed: int) -> None:
    """0 along the global direction, 1 against it, within [0, 1] otherwise, whatever the size of δ."""
    deltas, models = drawn(steps, seed)
    target = vectors([1, -2, 0.5, 0, 3, 1])[0]
    length = float(target.norm())

    def constant(w: Tensor) -> Tensor:
        return target

    along = [scale * target.expand(n, -1) for n in steps]
    for sign, drift in ((1, 0), (-1, 1)):
        found = of([sign * delta for delta in along], models, constant)
        assert found == pytest.approx((drift, sign, scale * length, length), abs=1e-9)
    found, scaled = of(deltas, models), of([scale * delta for delta in deltas], models)
    assert 0 <= found.drift <= 1
    # abs: cosines may cancel to almost zero, where the constant in the denominator of unit vectors counts
    assert scaled == pytest.approx(found._replace(local_norm=scale * found.local_norm), rel=1e-8, abs=1e-9)


@unequal
def test_streamed_as_if_all_was_held(steps: list[int], scale: float, seed: int) -> None:
    """The definition, word by word, over stacks of all iterates and perturbations."""
    deltas, models = drawn(steps, seed)
    distances, cosines = [], []
    for k in range(max(steps)):
        still = [i for i, n in enumerate(steps) if k < n]
        of_global = unit(torch.stack([models[i][k] for i in still]).mean(0))
        local = unit(torch.stack([deltas[i][k] for i in still]))
        distances += norm(of_global - local).flatten().tolist()
        cosines += (local @ of_global).tolist()
    found = of(deltas, models)
    assert found.drift == pytest.approx(sum(distances) / len(distances) / 2)
    assert found.cosine == pytest.approx(sum(cosines) / len(cosines), abs=1e-12)


def test_nothing_that_a_client_shows_is_held() -> None:
    """Ten clients with 3 steps each: one sum for each step is stored, each vector is gone before the next one comes."""
    shown: list[weakref.ref[Tensor]] = []

    def show(client: int, probe: Probe) -> None:
        for step in range(3):
            w, delta = torch.ones(4) * client, torch.ones(4)
            shown.extend([weakref.ref(w), weakref.ref(delta)])
            probe(client, step, w, delta)
            del w, delta
            assert all(reference() is None for reference in shown)

    perturbation_drift(range(10), show, identity, memory=0)
    assert len(shown) == 2 * 10 * 3 * 2


@unequal
def test_memory_saves_training_and_changes_no_bit(steps: list[int], scale: float, seed: int) -> None:
    """With room for all perturbations nobody trains twice; a client whose own do not all fit does."""
    deltas, models = drawn(steps, seed)
    calls: list[int] = []

    def counted(client: int, probe: Probe) -> None:
        calls.append(client)
        replay(deltas, models)(client, probe)

    found = []
    clients, rooms = len(steps), {sum(steps): len(steps), sum(steps) - 1: len(steps) + 1, 0: 2 * len(steps)}
    for room, trained in rooms.items():
        calls.clear()
        found.append(perturbation_drift(range(clients), counted, identity, memory=room * 6 * 8))
        assert len(calls) == trained
    assert len(set(found)) == 1


def test_equal_clients_perturb_as_the_global_objective_asks() -> None:
    """Clients with the same samples, full batches: FedSAM's δ_i is that of the global objective, ρ long."""
    federation = Problem(2).federation("fedsam", {"rho": 0.2})
    same = np.arange(5)
    federation.batch_sampler = FullBatches([same] * 3, 3)
    samples = federation.local.data.batch(torch.from_numpy(same))
    state = federation.start(federation.objective.initial())
    found = perturbation_drift(
        range(3),
        lambda client, probe: federation.train_clients(state, [client], probe),
        lambda w: federation.objective.full_gradient(w, [samples]),
    )
    assert found[:3] == pytest.approx((0, 1, 0.2), abs=1e-7)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    cell = load_experiment(MINI, {}).cell("digits/dirichlet-0.1/4-of-20/fedsam")
    return train(cell.runs[0], tmp_path_factory.mktemp("drift") / "run", CPU)


def test_of_a_run_as_if_all_was_held(run) -> None:
    """Participants and all clients of a real round; to 1e-5, in float32."""
    run = AnalysedRun(run, CPU)
    setup, state, data = run.setup, run.state(2), run.sample(images=100).data
    active, everybody = setup.active(state), list(range(20))
    held: dict[int, list[tuple[Tensor, Tensor]]] = {i: [] for i in everybody}
    setup.federation.train_clients(state, everybody, lambda i, _, w, delta: held[i].append((w.clone(), delta)))
    for virtual, clients in (("participants", active), ("all", everybody)):
        table = parse_analysis("drift", {"virtual": virtual, "images": 100}).of_run(run)
        distances = []
        for k in range(max(len(held[i]) for i in active)):
            mean = torch.stack([held[i][k][0] for i in clients if k < len(held[i])]).mean(0)
            of_global = unit(setup.objective.full_gradient(mean, data))
            distances += [float(norm(of_global - unit(held[i][k][1]))) for i in active if k < len(held[i])]
        row = table[table["round"] == 2].iloc[0]
        assert row["perturbation_drift"] == pytest.approx(sum(distances) / len(distances) / 2, rel=1e-5)
        assert row["local_norm"] == pytest.approx(0.05, rel=1e-3)  # FedSAM's rho
        assert ("all 20 clients'" if virtual == "all" else "their") in row["definition"]
        assert "100 training images" in row["definition"]


def test_without_a_perturbation_there_is_sharpness_alone(tmp_path: Path) -> None:
    cell = load_experiment(MINI, {}).cell("digits/dirichlet-0.1/4-of-20/fedavg")
    table = parse_analysis("drift", {"images": 60}).of_run(AnalysedRun(train(cell.runs[0], tmp_path / "run", CPU), CPU))
    assert table[["perturbation_drift", "cosine", "local_norm", "gradient_norm"]].isna().all(axis=None)
    assert table["sharpness"].notna().all()


def test_an_unknown_virtual_model_is_one_line() -> None:
    with pytest.raises(UserError, match=r"virtual = 'some': Input should be 'participants' or 'all'"):
        parse_analysis("drift", {"virtual": "some"})
