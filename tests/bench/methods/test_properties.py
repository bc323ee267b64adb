"""Properties that hold for whole families of methods, beyond the identities between single ones."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils import skip_init

from fedflat.bench.engine.federation import FederationState
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.compose import SLOTS, compose
from fedflat.bench.methods.losses.relaxed_contrastive import RelaxedContrastive
from fedflat.bench.methods.method import Method
from fedflat.bench.methods.perturbations.gf import GF
from fedflat.bench.methods.perturbations.smoo import SMOO
from fedflat.bench.methods.servers.adaptive import AdaGrad, Adam, Yogi
from tests.bench.methods.test_by_hand import server_round, vector
from tests.bench.methods.test_compositions import LEGAL, chosen
from tests.bench.methods.test_identities import EXACT, VALUES
from tests.bench.training.small_runs import CPU, check_resume
from tests.problems import Problem, distance

# Perturbations where there is no direction to take.


class FlatProblem(Problem):
    """One class: the loss is 0 everywhere, at parameters that are not."""

    def data(self):
        return [(x, torch.zeros_like(y)) for x, y in super().data()]

    def model(self):
        layer = skip_init(nn.Linear, 4, 1, dtype=torch.float64)
        nn.init.constant_(layer.weight, 0.5)
        nn.init.constant_(layer.bias, -0.25)
        return layer


def perturbations(federation, state: FederationState, active: list[int]) -> tuple[FederationState, torch.Tensor]:
    """The state after a round, and δ of every client and step, `[clients, steps, P]`."""
    deltas: dict[int, list[torch.Tensor]] = {i: [] for i in active}

    def probe(client: int, step: int, w: torch.Tensor, delta: torch.Tensor) -> None:
        deltas[client].append(delta)

    state, _ = federation.run_round(state, active, probe)
    return state, torch.stack([torch.stack(of_client) for of_client in deltas.values()])


STILL = [
    ({"perturbation": "sam"}, {"rho": 0.1}),
    ({"perturbation": "mixed_sam"}, {"rho": 0.1, "alpha": 0.5}),
    ({"perturbation": "asam"}, {"rho": 0.1, "eta_a": 0.2}),
    ({"perturbation": "asam"}, {"rho": 0.1, "eta_a": 0.0}),
    ({"perturbation": "smoo"}, {"rho": 0.1}),
    ({"perturbation": "lesam"}, {"rho": 0.1, "first_seen": "none"}),
    ({"perturbation": "lesam"}, {"rho": 0.1, "estimate": "released_intent"}),
    ({"perturbation": "lesam"}, {"rho": 0.1, "estimate": "released_literal"}),
    *[({"perturbation": "gf"}, {"rho": 0.1, "rho_g": 0.1, "T_D": T_D, "W": 2}) for T_D in (-1.0, 1.0)],
    *[({"perturbation": "toga"}, {"rho": 0.1, "kappa": 1.0, "direction": d}) for d in ("local", "neighbour", "fusion")],
]


@pytest.mark.parametrize(("components", "values"), STILL, ids=str)
def test_without_gradient_or_movement_there_is_no_perturbation(components, values):
    """Exactly zero, at every step of three rounds, and no NaN anywhere."""
    federation = FlatProblem(1).federation(compose(components), values)
    state = start = federation.start(federation.objective.initial())
    for active in ([0, 1], [1, 2], [1, 3]):
        state, deltas = perturbations(federation, state, active)
        assert deltas.shape[:2] == (2, 3)
        assert bool((deltas == 0).all())
        assert torch.equal(state.w, start.w)
        assert all(bool(torch.isfinite(v).all()) for v in state.server.values())
        assert all(bool(torch.isfinite(v).all()) for vs in state.clients.values() for v in vs.values())


def test_lesam_perturbs_only_what_has_moved_since_the_client_was_last_here():
    """w_i^old = 0 at first, so δ = −ρ w^t/‖w^t‖; at the same model again, none."""
    federation = FlatProblem(1).federation("fedlesam", {"rho": 0.1})
    start = federation.start(federation.objective.initial())
    state, first = perturbations(federation, start, [0, 1])
    assert torch.allclose(first, (-0.1 * start.w / start.w.norm()).expand_as(first))
    _, again = perturbations(federation, state, [0, 1])
    assert bool((again == 0).all())


def test_lesam_with_an_old_model_that_is_the_current_one_has_none_under_any_gradient():
    federation = Problem(2).federation("fedlesam", {"rho": 0.1})
    state = federation.start(federation.objective.initial())
    state = replace(state, round=1, clients=state.clients.updated({i: {"w_old": state.w} for i in (0, 1)}))
    after, deltas = perturbations(federation, state, [0, 1])
    assert bool((deltas == 0).all())
    assert not torch.equal(after.w, state.w)


def test_gf_after_a_server_that_did_not_move_sends_the_model_itself():
    """v^t = w^t; with c = 1 gradients are taken there, so that δ = w^t − w: exactly zero at the first step."""
    w = vector(3, 4)
    component = GF(rho=0.1, rho_g=0.5, T_D=0.0, W=2)
    assert torch.equal(component.broadcast(w, {"w_previous": w, "indicators": vector(1)}, 0)["v"], w)

    federation = Problem(2).federation("fedgf", {"rho": 0.1, "rho_g": 0.5, "T_D": 0.0, "W": 2})
    state = federation.start(federation.objective.initial())
    state = replace(state, round=1, server={"w_previous": state.w.clone(), "indicators": state.w.new_ones(1)})
    _, deltas = perturbations(federation, state, [0, 1])
    assert bool((deltas[:, 0] == 0).all())
    assert bool((deltas[:, 1:].norm(dim=-1) > 1e-6).all())


# Weights.

BY_SAMPLES = {"fedavg", "fedavgm", "fedadam", "fedadagrad", "fedyogi", "fedprox", "fedsam", "fedasam", "fedgf"}
BY_SAMPLES |= {"dp_fedsam", "fedgloss", "fedswa", "fedscam"}
OWN_WEIGHTS = {"fedscam": {"weight_damping": 0.0, "alignment": 0.0}}
"""Methods that compute weights, by values at which they keep those that are given."""


@pytest.mark.parametrize("aggregation", [None, "uniform", "samples"])
@pytest.mark.parametrize("method", VALUES)
def test_the_weights_that_a_server_gets_sum_to_one(method, aggregation, monkeypatch):
    """1/M, or the share of the active clients' samples; each method has its own default."""
    problem = Problem(4)
    federation = problem.federation(method, VALUES[method] | OWN_WEIGHTS.get(method, {}), aggregation=aggregation)
    seen, kind = [], type(federation.method.server)
    step = kind.step
    monkeypatch.setattr(kind, "step", lambda component, server: seen.append(server.weights) or step(component, server))
    state = federation.start(federation.objective.initial())
    rounds = ([0, 3], [1, 2, 3])
    for active in rounds:
        state, _ = federation.run_round(state, active)
    by_samples = aggregation == "samples" or (aggregation is None and method in BY_SAMPLES)
    for weights, active in zip(seen, rounds, strict=True):
        sizes = vector(*(len(problem.data()[i][1]) if by_samples else 1 for i in active))
        assert torch.allclose(weights, sizes / sizes.sum(), atol=1e-15)
        assert float(weights.sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("method", VALUES)
def test_equal_clients_make_both_weightings_one(method):
    problem = Problem(5, rounds=2)
    equal = [(x[:5], y[:5]) for x, y in problem.data()]
    runs = [problem.run(method, VALUES[method], clients=equal, aggregation=a) for a in ("samples", "uniform")]
    assert distance(*runs) < EXACT


SAMPLE_PARTS = {
    "perturbation": {"none", "sam", "mixed_sam", "asam", "gf", "dp_fedsam", "fedgloss", "fednsam", "fedscam"},
    "correction": {"none", "prox", "dp_fedsam", "fedswa"},
    "server": {"average", "momentum", "adam", "adagrad", "yogi"},
}


def test_compositions_weigh_by_samples_only_where_every_component_allows_it():
    """Control variates, duals, client momentum and losses that compare samples presume equal weights."""
    assert all(names <= set(SLOTS[slot]) for slot, names in SAMPLE_PARTS.items())
    weightings = {triple: compose(chosen(triple)).aggregation for triple in LEGAL}
    by_samples = {triple for triple, aggregation in weightings.items() if aggregation == "samples"}
    assert by_samples == set(itertools.product(*SAMPLE_PARTS.values()))
    assert set(weightings.values()) == {"samples", "uniform"}
    weighting = {loss: compose({"loss": loss}).aggregation for loss in SLOTS["loss"]}
    assert {loss for loss, aggregation in weighting.items() if aggregation == "samples"} == {
        "cross_entropy",
        "fedgmt",
        "hard_pixels",
    }


# What the server sends.


@pytest.mark.parametrize("method", VALUES)
def test_nothing_that_was_sent_changes_during_a_round(method, monkeypatch):
    """Bit by bit: the tensors that clients got, those computed before the round, and those computed again after it."""
    problem = Problem(6)
    federation = problem.federation(method, VALUES[method])
    components, given = federation.method, []
    broadcast = Method.broadcast

    def recorded(self, w, state, t):
        vectors = broadcast(self, w, state, t)
        given.extend((v, v.clone()) for v in vectors.values())
        return vectors

    def sent(state: FederationState) -> dict[str, torch.Tensor]:
        model = components.server.broadcast_model(state.w, state.server, state.round)
        return {**broadcast(components, state.w, state.server, state.round), "the model": model}

    state = federation.start(federation.objective.initial())
    for active in problem.some():
        before = sent(state)
        copies = {name: v.clone() for name, v in before.items()}
        with monkeypatch.context() as patch:
            patch.setattr(Method, "broadcast", recorded)
            after, _ = federation.run_round(state, active)
        again = sent(state)
        assert before.keys() == again.keys()
        assert all(torch.equal(before[name], v) for name, v in copies.items())
        assert all(torch.equal(again[name], v) for name, v in copies.items())
        assert all(torch.equal(v, copy) for v, copy in given)
        state = after


# Adaptive servers.

SECOND_MOMENTS = [
    # τ = 2, β₂ = 0.75; Δ = (3, 1), then (2.25, −4), whose first square lies between τ² and v: Yogi then shrinks v.
    (AdaGrad(beta1=0.5, tau=2.0), (4 + 9 + 2.25**2, 4 + 1 + 16)),
    (Adam(beta1=0.5, beta2=0.75, tau=2.0),
     (0.75 * (0.75 * 4 + 0.25 * 9) + 0.25 * 2.25**2, 0.75 * (0.75 * 4 + 0.25 * 1) + 0.25 * 16)),
    (Yogi(beta1=0.5, beta2=0.75, tau=2.0), (4 + 0.25 * 9 - 0.25 * 2.25**2, 4 - 0.25 * 1 + 0.25 * 16)),
]  # fmt: skip


@pytest.mark.parametrize(("server", "v"), SECOND_MOMENTS, ids=lambda component: getattr(component, "name", ""))
def test_the_second_adaptive_step_with_another_update(server, v):
    """m = 0.5·0.5 (3, 1) + 0.5 (2.25, −4) = (1.875, −1.75); w = (10, 20) + 0.5 m/(√v + 2)."""
    once, twice = (torch.stack([update] * 2) for update in (vector(3, 1), vector(2.25, -4)))
    first = server_round(state=server.start_server(vector(0, 0)), updates=once, server_lr=0.5)
    server.step(first)
    second = server_round(round=1, state=first.state, updates=twice, server_lr=0.5)
    stepped = server.step(second)
    expected = [10 + 0.5 * 1.875 / (math.sqrt(v[0]) + 2), 20 - 0.5 * 1.75 / (math.sqrt(v[1]) + 2)]
    assert torch.allclose(second.state["v"], vector(*v), rtol=1e-14)
    assert torch.allclose(stepped, vector(*expected), rtol=1e-14)


# FedSMOO's two halves.


class WithoutPerturbationDuals(SMOO):
    """SMOO whose s and μ_i are zero at every step."""

    def broadcast(self, w, state):
        return {"s": torch.zeros_like(w)}

    def delta(self, w, gradient, client):
        client.scratch["mu"] = torch.zeros_like(w)
        return super().delta(w, gradient, client)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.01, "clip": 0.3}], ids=str)
def test_fedsmoo_without_its_perturbation_duals_is_fedsam_with_feddyns_term(seed, options):
    values, problem = {"rho": 0.2, "lam": 0.3}, Problem(seed)
    entry = CATALOG["fedsmoo"]
    without = replace(entry, components=replace(entry.components, perturbation=WithoutPerturbationDuals))
    both = compose({"perturbation": "sam", "correction": "feddyn", "server": "feddyn"})
    expected = problem.run(both, values, **options)
    assert distance(problem.run(without, values, **options), expected) < EXACT
    assert distance(problem.run("fedsmoo", values, **options), expected) > 1e-6


# FedRCL with several positives.


def at_angles(*degrees: float) -> torch.Tensor:
    """Unit vectors whose similarities are the cosines of the differences."""
    return torch.tensor([[math.cos(math.radians(a)), math.sin(math.radians(a))] for a in degrees], dtype=torch.float64)


def penalty(*terms: float) -> float:
    """log(1 + Σ e^{(r − 1)/T}) at T = 0.5."""
    return math.log(1 + sum(math.exp((r - 1) / 0.5) for r in terms))


def two_positives(threshold: float) -> RelaxedContrastive:
    return RelaxedContrastive(temperature=0.5, threshold=threshold, weight_scl=0.0, weight_pen=3.0, k_pos=2)


@pytest.mark.parametrize("threshold", [-1.0, 0.4])
def test_fedrcl_sums_over_the_two_least_similar_of_a_class(threshold):
    """Similarities 1/2, −√3/2 and 0; those below the threshold count as −1."""
    near, far, square = (r if r >= threshold else -1.0 for r in (0.5, -math.sqrt(3) / 2, 0.0))
    expected = (penalty(near, far) + penalty(near, square) + penalty(far, square)) / 3
    got = two_positives(threshold).level_loss(at_angles(0, 60, 150), torch.tensor([0, 0, 0]))
    assert float(got) == pytest.approx(3 * expected)


def test_fedrcl_takes_the_least_similar_of_three_candidates():
    """Four samples of one class at 0°, 10°, 40° and 90°: each anchor's two farthest."""
    farthest = [(90, 40), (80, 30), (50, 40), (90, 80)]
    expected = sum(penalty(*(math.cos(math.radians(a)) for a in pair)) for pair in farthest) / 4
    got = two_positives(-1.0).level_loss(at_angles(0, 10, 40, 90), torch.tensor([1, 1, 1, 1]))
    assert float(got) == pytest.approx(3 * expected)


def test_fedrcl_counts_no_positive_that_does_not_exist():
    """A pair at 60° and one alone: one term each, the pair's 1/2 and the constant −1, though k_pos = 2."""
    expected = (penalty(0.5) + penalty(0.5) + penalty(-1.0)) / 3
    got = two_positives(0.4).level_loss(at_angles(0, 60, 90), torch.tensor([0, 0, 1]))
    assert float(got) == pytest.approx(3 * expected)


# Resuming.


@pytest.mark.parametrize("estimate", ["released_intent", "released_literal"])
def test_resume_is_bitwise_for_lesams_released_estimates(estimate, tmp_path, monkeypatch):
    """The model before the last server step is part of a checkpoint."""
    check_resume("fedlesam", CPU, tmp_path, monkeypatch, **{"methods.fedlesam.hyperparameters.estimate": estimate})
