"""Identities of the methods of 2023 to 2026, over random small problems, and their equations by hand."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedflat.bench.engine.local import LocalWork
from fedflat.bench.engine.method_costs import example
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import unit
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.compose import compose
from fedflat.bench.methods.corrections.dual_only import DualOnly
from fedflat.bench.methods.corrections.dyn import DynamicRegulariser
from fedflat.bench.methods.corrections.falling_rate import FallingRate
from fedflat.bench.methods.corrections.wmsam import cosine
from fedflat.bench.methods.losses.trajectory import TrajectoryTeacher
from fedflat.bench.methods.perturbations.nsam import NesterovSAM
from fedflat.bench.methods.servers.average import Average
from fedflat.bench.methods.servers.gloss import GlobalAscent
from fedflat.bench.methods.servers.nsam import NesterovServer
from tests.bench.methods.test_by_hand import server_round, vector
from tests.bench.methods.test_identities import problems
from tests.problems import Problem, distance

EXACT = 1e-10
few = settings(max_examples=6, deadline=None)
settings_of_runs = st.fixed_dictionaries(
    {"weight_decay": st.sampled_from([0.0, 0.05]), "aggregation": st.sampled_from(["uniform", "samples"])}
)
EVERYBODY, ONE_STEP = "everybody", {"local_steps": 1}


def options_of(problem: Problem, **changes) -> dict:
    """Options of a run; `participants: everybody` stands for all clients in every round."""
    everybody = {"participants": problem.everybody()} if changes.get("participants") == EVERYBODY else {}
    return {**changes, **everybody}


# Each is (method, values, the base that it equals, its values, options of both runs).
GLOSS = {"rho": 0.1, "rho_g": 0.2, "lam": 0.3}
GMT = {"lam": 0.3, "ema_decay": 0.9}
MOSWA = {"lr_ratio": 1, "control_rate": 1}
WMSAM = {"rho": 0, "alpha": 0.3, "alpha_rate": 0, "correction_weight": 0}
SCAM = {"rho": 0.2, "radius_damping": 0, "weight_damping": 0, "alignment": 0}
SAME = [
    ("fedgloss", {"rho": 0, "rho_g": 0, "lam": 0.3}, "feddyn", {"lam": 0.3}, {}),
    ("fedgloss", {"rho": 0, "rho_g": 0, "lam": 0.3, "warmup": 3}, "feddyn", {"lam": 0.3}, {}),
    ("fedgloss", {"rho": 0.1, "rho_g": 0, "lam": 0.3}, "fedspeed", {"rho": 0.1, "lam": 0.3}, {}),
    ("fedgloss", GLOSS, "fedgloss", {**GLOSS, "warmup": 1, "rho_0": 0.5}, {}),
    ("fedgloss", {**GLOSS, "rho": 0.2}, "fedgloss", {**GLOSS, "rho": 0.2, "warmup": 3, "rho_0": 0.2}, {}),
    ("fedgmt", {**GMT, "weight_kl": 0}, "feddyn", {"lam": 0.3}, ONE_STEP),
    ("fedgmt", {**GMT, "ema_decay": 0, "weight_kl": 2}, "feddyn", {"lam": 0.3}, ONE_STEP),
    ("fedgmt", GMT, "fedgmt", {**GMT, "server_dual": "active"}, {"participants": EVERYBODY, "aggregation": "uniform"}),
    ("fedswa", {"lr_ratio": 1}, "fedavg", {}, {"server_lr": 1.5}),
    ("fedmoswa", MOSWA, "scaffold", {}, {"participants": EVERYBODY, "aggregation": "uniform", "server_lr": 1.5}),
    ("fedmoswa", {**MOSWA, "control_rate": 0.3}, "fedmoswa",
     {**MOSWA, "control_rate": 0.3, "control_norm": "trapezoid"}, {}),
    ("fedmoswa", {**MOSWA, "lr_ratio": 0.2}, "fedmoswa", {**MOSWA, "lr_ratio": 0.2, "control_start": "mean"}, {}),
    ("fedwmsam", WMSAM, "fedcm", {"alpha": 0.3}, {}),
    ("fedwmsam", {**WMSAM, "rho": 0.5}, "fedwmsam", WMSAM, ONE_STEP),
    ("fedwmsam", {**WMSAM, "rho": 0.9, "estimate": "released_intent"}, "fedwmsam", WMSAM, ONE_STEP),
    ("fedwmsam", {**WMSAM, "rho": 0.9, "estimate": "released_literal"}, "fedwmsam", WMSAM, ONE_STEP),
    ("fednsam", {"rho": 0, "beta": 0.7}, "fedacg", {"beta": 0.7, "lam": 0}, {}),
    ("fednsam", {"rho": 0.2, "beta": 0}, "fedsam", {"rho": 0.2}, {}),
    ("fednsam", {"rho": 0.2, "beta": 0, "ascent": "momentum"}, "fedlesam", {"rho": 0.2, "first_seen": "none"},
     {"participants": EVERYBODY}),
    ("fednsam", {"rho": 0, "beta": 0.7, "ascent": "momentum"}, "fedacg", {"beta": 0.7, "lam": 0},
     {"weight_decay": 0.0}),
    ("fedscam", SCAM, "fedsam", {"rho": 0.2}, {}),
    ("fedscam", {**SCAM, "rho": 0}, "fedavg", {}, {}),
    ("dp_fedsam", {"rho": 0.2, "dp_clip": 1e9}, "fedsam", {"rho": 0.2}, {}),
    ("dp_fedsam", {"rho": 0.2, "dp_clip": math.inf, "clip_scope": "tensor"}, "fedsam", {"rho": 0.2}, {}),
    ("dp_fedsam", {"rho": 0.2, "dp_clip": 1e9, "ascent": "adaptive"}, "fedasam",
     {"rho": 0.2, "eta_a": 0, "biases": "adaptive"}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "values", "base", "base_values", "changes"), SAME, ids=str)
@few
@given(problem=problems, settings_of_run=settings_of_runs)
def test_equals_its_base(method, values, base, base_values, changes, problem, settings_of_run):
    options = {**settings_of_run, **options_of(problem, **changes)}
    assert distance(problem.run(method, values, **options), problem.run(base, base_values, **options)) < EXACT


@few
@given(problem=problems)
def test_without_momentum_fednsam_ascends_along_the_last_step_of_all(problem):
    """As FedLESAM's released estimate on a model of one tensor, also for clients that were not in the last round."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(problem.seed)
        model = torch.nn.Linear(4, 3, bias=False).double()
    nsam = problem.run("fednsam", {"rho": 0.2, "beta": 0, "ascent": "momentum"}, model=model)
    lesam = problem.run("fedlesam", {"rho": 0.2, "estimate": "released_intent"}, model=model)
    assert distance(nsam, lesam) < EXACT
    assert distance(nsam, problem.run("fedavg", {}, model=model)) > 1e-6


FIRST_ROUNDS = [
    ("fedgloss", GLOSS, "fedgloss", {**GLOSS, "rho_g": 0.7}),
    ("fedmoswa", {"lr_ratio": 0.1, "control_rate": 0.2}, "fedswa", {"lr_ratio": 0.1}),
    ("fedscam", {"rho": 0.2}, "fedscam", {"rho": 0.2, "pilot": "gradient", "kappa": 3, "alignment": 5}),
    ("fednsam", {"rho": 0.2, "beta": 0.5}, "fedsam", {"rho": 0.2}),
]


@pytest.mark.parametrize(("method", "values", "other", "other_values"), FIRST_ROUNDS, ids=str)
@few
@given(problem=problems)
def test_the_first_rounds_are_equal_and_the_second_ones_are_not(method, values, other, other_values, problem):
    one, another = problem.run(method, values), problem.run(other, other_values)
    assert torch.allclose(one.global_params[0], another.global_params[0], atol=EXACT)
    assert not torch.allclose(one.global_params[-1], another.global_params[-1], atol=1e-7)


# FedGloSS.


def test_the_radii_rise_linearly():
    values = {**GLOSS, "rho": 0.5, "rho_0": 0.1, "warmup": 4}
    method = CATALOG["fedgloss"].build(values)
    radii = [method.round_values(t, 9) for t in range(6)]
    assert [of["perturbation"]["rho"] for of in radii] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.5])
    assert [of["server"]["rho_g"] for of in radii] == pytest.approx([0.1, 0.125, 0.15, 0.175, 0.2, 0.2])
    assert CATALOG["fedgloss"].build({**values, "warmup": 1}).round_values(0, 9) == {}


def test_the_warm_up_from_zero_is_a_schedule_of_both_radii():
    """`warmup` of FedGloSS, and the schedule `warmup` that every radius can follow."""
    problem, rise = Problem(3), {"name": "warmup", "rounds": 3, "start": 0}
    own = problem.run("fedgloss", {**GLOSS, "rho_0": 0, "warmup": 3})
    scheduled = problem.run("fedgloss", {**GLOSS, "schedules": {"rho": rise, "rho_g": rise}})
    assert distance(own, scheduled) < EXACT
    for radius in ("rho", "rho_g"):
        torch.testing.assert_close(torch.tensor(own.history[radius]), torch.tensor(scheduled.history[radius]))
    assert distance(own, problem.run("fedgloss", GLOSS)) > 1e-6


def test_the_servers_radius_as_released_is_that_of_clients_during_the_warm_up():
    """ρ + (ρ_g − ρ₀)/T_s = 0.3 + (0.2 − 0.1)/2 up to round 2, then ρ_g."""
    server = GlobalAscent(rho=0.3, rho_g=0.2, rho_0=0.1, warmup=2, server_radius="released")
    assert [server.radius(t) for t in (1, 2, 3)] == pytest.approx([0.35, 0.35, 0.2])


class Renewed(DynamicRegulariser):
    """FedGloSS's released code: the anchor, and with it the dual, is renewed after the local step `renewed_after`."""

    name = "renewed"
    renewed_after: int = 1

    def start(self, client):
        client.scratch |= {"anchor": client.w_global, "dual": client.state["H"], "last": client.w_global}

    def direction(self, g, w, client):
        if client.step == self.renewed_after:
            client.scratch["dual"] = client.scratch["dual"] + (w - client.scratch["anchor"])
            client.scratch["anchor"] = w
        return g + self.lam * (client.scratch["dual"] + w - client.scratch["anchor"])

    def finish(self, w, client):
        client.state["H"] = client.scratch["dual"] + (w - client.scratch["anchor"])


@few
@given(problem=problems, step=st.integers(1, 2))
def test_an_anchor_that_is_renewed_after_any_local_step_changes_nothing(problem, step):
    """The dual takes in what the anchor gives up, so that H_i + w − a^t never jumps."""
    components = replace(CATALOG["fedgloss"].components, correction=Renewed)
    renewed = problem.run(
        replace(CATALOG["fedgloss"], takes=None, components=components), {**GLOSS, "renewed_after": step}
    )
    assert distance(renewed, problem.run("fedgloss", GLOSS)) < EXACT


@pytest.mark.parametrize("length", [1.0, 1e-6])
def test_the_ascent_is_as_long_as_the_radius_however_short_the_last_update_is(length):
    server = GlobalAscent(rho=0.1, rho_g=0.5)
    state = {**server.start_server(vector(1, 2)), "last_update": length * vector(0.6, 0.8)}
    assert torch.allclose(server.broadcast_model(vector(1, 2), state, 0), vector(1 - 0.3, 2 - 0.4), atol=1e-6)


@pytest.mark.parametrize(("norm", "H_bar"), [("N", (0.25, 0.75)), ("NM", (0.125, 0.375))])
def test_the_server_steps_from_w_and_not_from_where_clients_start(norm, H_bar):
    """Clients started from (9, 20): w = (10, 20) + (0.25, 2.25) + H̄."""
    given = server_round(start=vector(9, 20), state=GlobalAscent(rho=0.1, rho_g=1).start_server(vector(0, 0)))
    stepped = GlobalAscent(rho=0.1, rho_g=1, dual_norm=norm).step(given)
    assert torch.equal(given.state["H_bar"], vector(*H_bar))
    assert torch.equal(stepped, vector(10.25, 22.25) + vector(*H_bar))


# FedGMT.


class WithProximalTerm(DualOnly):
    """FedGMT's correction plus λ (w − w^t)."""

    def direction(self, g, w, client):
        return super().direction(g, w, client) + self.lam * (w - client.w_global)


@few
@given(problem=problems, settings_of_run=settings_of_runs)
def test_fedgmt_with_feddyns_proximal_term_is_feddyn(problem, settings_of_run):
    entry = CATALOG["fedgmt"]
    with_it = replace(entry, components=replace(entry.components, correction=WithProximalTerm))
    run = problem.run(with_it, {**GMT, "weight_kl": 0}, **settings_of_run)
    assert distance(run, problem.run("feddyn", {"lam": 0.3}, **settings_of_run)) < EXACT


def test_the_teacher_pulls_by_the_difference_of_probabilities_and_not_at_all_where_it_is_the_model():
    """∂F/∂f = γ T (softmax(f_w/T) − softmax(f_e/T))/B."""
    loss = TrajectoryTeacher(ema_decay=0.9, weight_kl=2.0, temperature=3.0)
    stream = torch.Generator().manual_seed(0)
    e, f = (torch.randn(4, 3, generator=stream, dtype=torch.float64) for _ in range(2))
    f.requires_grad_()
    [pull] = torch.autograd.grad(loss.weight_kl * loss.temperature**2 * loss.distances(e, f).mean(), f)
    expected = 2.0 * 3.0 * ((f / 3.0).softmax(1) - (e / 3.0).softmax(1)) / 4
    assert torch.allclose(pull, expected, atol=1e-12)
    [none] = torch.autograd.grad(loss.distances(f.detach().clone(), f).mean(), f)
    assert torch.allclose(none, torch.zeros_like(none), atol=1e-15)


def test_the_trajectory_contains_the_current_model():
    """e^1 = 0.75 w^0 + 0.25 w^1, which is sent at the beginning of round 1; e^0 = w^0 to the bit."""
    loss, w0, w1 = TrajectoryTeacher(ema_decay=0.75), vector(0.1, 0.7), vector(1, 2)
    first = server_round(w=w0, state=loss.start_server(w0))
    assert torch.equal(loss.broadcast(w0, first.state, 0)["e"], w0)
    loss.aggregate(first)
    assert torch.allclose(loss.broadcast(w1, first.state, 0)["e"], 0.75 * w0 + 0.25 * w1)


# FedSWA and FedMoSWA.


@pytest.mark.parametrize(("ratio", "steps"), [(0.1, 1), (0.1, 7), (0.0, 3), (1.0, 5)])
def test_the_sum_of_fedswas_rates_in_closed_form(ratio, steps):
    local = Problem(0).federation("fedswa", {"lr_ratio": ratio}).local
    assert local.full_rate_steps(steps) == pytest.approx((steps * (1 + ratio) + 1 - ratio) / 2)
    assert FallingRate(lr_ratio=ratio).rate(2.0, steps - 1, steps) == pytest.approx(
        2 * (1 - (1 - ratio) * (steps - 1) / steps)
    )


def test_fedswa_is_fedavg_with_a_polynomial_rate():
    """Power 1 and horizon 1/(1 − r)."""
    one = Problem(3).federation("fedswa", {"lr_ratio": 0.2}, server_lr=1.5)
    other = Problem(3).federation("fedavg", {}, server_lr=1.5, lr_poly={"power": 1, "horizon": 1 / 0.8})
    state = one.start(one.objective.initial())
    assert torch.allclose(one.run_round(state, [0, 2])[0].w, other.run_round(state, [0, 2])[0].w, atol=1e-14)


@few
@given(problem=problems)
def test_fedmoswas_control_is_the_mean_gradient_of_the_path_weighted_by_the_rates(problem):
    federation = problem.federation("fedmoswa", {"lr_ratio": 0.1, "control_rate": 0.2})
    state = federation.start(federation.objective.initial())
    for active in problem.some()[:2]:
        path: dict[int, list[torch.Tensor]] = {i: [] for i in active}
        state_after, _ = federation.run_round(state, active, lambda i, k, w, delta, path=path: path[i].append(w))
        for i in active:
            batches = federation.batch_sampler(i, state.round)
            gradients = torch.stack([
                federation.objective.gradient(w.clone(), *federation.local.data.batch(index))[0]
                for w, index in zip(path[i], batches, strict=True)
            ])  # fmt: skip
            rates = vector(*(federation.local.rate(0.1, k, 3) for k in range(3)))
            assert torch.allclose(state_after.clients[i]["c_i"], rates @ gradients / rates.sum(), atol=EXACT)
        state = state_after


def test_fedmoswas_other_control_is_the_gradient_at_the_global_model():
    federation = Problem(4).federation("fedmoswa", {"lr_ratio": 0.1, "control_rate": 0.2, "control": "gradient"})
    state = federation.start(federation.objective.initial())
    after, measured = federation.run_round(state, [0, 2])
    for i in (0, 2):
        [index] = federation.batch_sampler.one_pass(i)
        g = federation.objective.gradient(state.w, *federation.local.data.batch(index))[0]
        assert torch.allclose(after.clients[i]["c_i"], g, atol=EXACT)
    assert measured["gradients"] == pytest.approx(4 / 3), "three steps and a pass over all data"


# FedWMSAM.


@few
@given(problem=problems)
def test_fedwmsam_with_a_weight_near_one_is_nearly_scaffold(problem):
    values = {"rho": 0, "alpha": 1 - 1e-10, "alpha_rate": 0}
    assert distance(problem.run("fedwmsam", values), problem.run("scaffold")) < 1e-8


@few
@given(problem=problems, correction_weight=st.sampled_from([0.0, 1.0]))
def test_fedwmsam_with_one_client_is_fedcm(problem, correction_weight):
    one = {"clients": problem.data()[:1], "participants": [[0]] * 4}
    values = {**WMSAM, "correction_weight": correction_weight}
    assert distance(problem.run("fedwmsam", values, **one), problem.run("fedcm", {"alpha": 0.3}, **one)) < EXACT


@pytest.mark.parametrize("rule", ["opposition", "agreement", "personal"])
@few
@given(problem=problems)
def test_the_weight_stays_between_its_start_and_its_bounds(rule, problem):
    values = {"rho": 0.1, "alpha": 0.3, "alpha_rate": 0.5, "alpha_min": 0.2, "alpha_max": 0.8, "alpha_rule": rule}
    weights = problem.run("fedwmsam", values).history["alpha"]
    assert weights.iloc[0] == pytest.approx(0.3)
    assert weights.between(0.2, 0.8).all()


def test_a_cosine_with_nothing_is_zero():
    assert cosine(vector(3, 4), vector(4, 3)).tolist() == pytest.approx([0.96])
    assert cosine(vector(0, 0), vector(4, 3)).tolist() == [0]


# FedNSAM.


def test_fednsam_as_released_is_the_composition_of_sam_and_look_ahead():
    composed = compose({"perturbation": "sam", "server": "look_ahead"})
    runs = [Problem(5).run(method, {"rho": 0.1, "beta": 0.8}) for method in (composed, "fednsam")]
    assert all(torch.equal(a, b) for a, b in zip(*(run.global_params for run in runs), strict=True))


class AtShiftedStart(NesterovSAM):
    """Gradients at w − ρ unit(m), for clients that start from w^t + βm."""

    def start(self, client):
        super().start(client)
        client.scratch["nsam_delta"] = client.scratch["nsam_delta"] - self.beta * client.received["momentum"]


class ShiftedStart(NesterovServer):
    """Clients start from w^t + βm, whatever the ascent is."""

    def broadcast_model(self, w, state):
        return w + self.beta * state["m"]


@few
@given(problem=problems)
def test_without_decay_a_shifted_start_and_a_shifted_gradient_are_the_same(problem):
    values = {"rho": 0.2, "beta": 0.6, "ascent": "momentum"}
    entry = CATALOG["fednsam"]
    parts = replace(entry.components, perturbation=AtShiftedStart, server=ShiftedStart)
    assert distance(problem.run(replace(entry, components=parts), values), problem.run("fednsam", values)) < EXACT


def test_the_momentum_of_march_2026_forgets():
    """Δ = (0.25, 2.25): m = Δ in round 0, then 1.5 Δ whatever m was."""
    server = NesterovServer(beta=0.5, momentum="last_update")
    for t, factor in ((0, 1.0), (3, 1.5)):
        given = server_round(round=t, state={"m": vector(7, 7)})
        assert torch.equal(server.step(given), vector(10, 20) + factor * vector(0.25, 2.25))
        assert torch.equal(given.state["m"], factor * vector(0.25, 2.25))


# FedSCAM.


@pytest.mark.parametrize("aggregation", ["uniform", "samples"])
def test_fedscams_first_weights_fall_with_the_gradient(aggregation, monkeypatch):
    """p_i/(1 + α_w ‖g_i‖), normalised."""
    federation = Problem(2).federation("fedscam", {"rho": 0.1, "weight_damping": 2.0}, aggregation=aggregation)
    state, seen = federation.start(federation.objective.initial()), []
    step = Average.step
    monkeypatch.setattr(Average, "step", lambda self, server: seen.append(server.weights) or step(self, server))
    federation.run_round(state, [0, 3])
    batches = [federation.local.data.batch(federation.batch_sampler(i, 0)[0]) for i in (0, 3)]
    lengths = torch.stack([federation.objective.gradient(state.w, *batch)[0].norm() for batch in batches])
    p = (vector(5, 11) if aggregation == "samples" else vector(1, 1)) / (1 + 2 * lengths)
    assert torch.allclose(seen[0], p / p.sum(), atol=1e-12)


def test_fedscam_keeps_the_given_weights_if_all_of_its_own_are_zero():
    server = server_round(uploads={"score": torch.ones(2, 1), "alignment": torch.tensor([[-2.0], [-3.0]])})
    component = CATALOG["fedscam"].build({"rho": 0.1, "alignment": 1.0}).perturbation
    assert torch.equal(component.client_weights(server), server.weights)


# DP-FedSAM.


def test_the_servers_step_is_as_long_as_the_bound_if_one_client_is_clipped():
    run = Problem(1).run("dp_fedsam", {"rho": 0.1, "dp_clip": 0.01}, participants=[[2], [0]])
    assert float((run.global_params[1] - run.global_params[0]).norm()) == pytest.approx(0.01)


def test_tensors_are_clipped_each_by_itself():
    federation = Problem(1).federation("dp_fedsam", {"rho": 0.1, "dp_clip": 0.01, "clip_scope": "tensor"})
    state = federation.start(federation.objective.initial())
    model = federation.train_clients(state, [2])[2].model
    lengths = [float(part.norm()) for part in (model - state.w).split(federation.objective.layout.sizes)]
    assert lengths == pytest.approx([0.01] * 4)


@pytest.mark.parametrize("sigma", [0.5, 3.0])
@pytest.mark.parametrize("aggregation", ["uniform", "samples"])
def test_the_noise_is_that_of_the_named_stream(aggregation, sigma):
    """The difference to the run without noise in round 0: σ C/√M Σ p_i z_i."""
    problem, values = Problem(1), {"rho": 0.1, "dp_clip": 0.01}
    quiet, noisy = (
        problem.federation("dp_fedsam", {**values, "dp_noise": noise}, aggregation=aggregation) for noise in (0, sigma)
    )
    state = quiet.start(quiet.objective.initial())
    difference = noisy.run_round(state, [0, 3])[0].w - quiet.run_round(state, [0, 3])[0].w
    z = torch.stack([work.normal("dp_noise", len(state.w), state.w.dtype) for work in noisy.work(state, [0, 3])])
    p = vector(5 / 16, 11 / 16) if aggregation == "samples" else vector(0.5, 0.5)
    assert torch.allclose(difference, sigma * 0.01 / math.sqrt(2) * p @ z, atol=1e-12)


def test_noise_differs_between_clients_rounds_and_seeds_and_repeats_otherwise():
    federation = Problem(1).federation("dp_fedsam", {"rho": 0.1, "dp_clip": 1, "dp_noise": 1})
    state = federation.start(federation.objective.initial())
    works: list[LocalWork] = federation.work(state, [0, 1])
    draws = [work.normal("dp_noise", 5, torch.float64) for work in (*works, *(replace(w, round=1) for w in works))]
    draws += [replace(works[0], seed=9).normal("dp_noise", 5, torch.float64)]
    assert len({tuple(draw.tolist()) for draw in draws}) == 5
    assert torch.equal(draws[0], works[0].normal("dp_noise", 5, torch.float64))


# Wrong values.


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        ("dp_fedsam", {"dp_clip": 0}, "dp_clip = 0"),
        ("dp_fedsam", {"dp_clip": -1}, "dp_clip = -1"),
        ("dp_fedsam", {"dp_clip": math.nan}, "dp_clip"),
        ("dp_fedsam", {"dp_clip": math.inf, "dp_noise": 1}, "needs a finite dp_clip"),
        ("dp_fedsam", {"dp_noise": -1}, "dp_noise = -1"),
        ("fedgloss", {"rho_g": 0, "rho": 0.01, "rho_0": 1, "warmup": 2, "server_radius": "released"}, "= -0.49"),
        ("fedgloss", {"rho_0": -0.1}, "rho_0 = -0.1"),
        ("fedgmt", {"ema_decay": 1}, "ema_decay = 1"),
        ("fedgmt", {"temperature": 0}, "temperature = 0"),
        ("fedswa", {"lr_ratio": 1.5}, "lr_ratio = 1.5"),
        ("fedwmsam", {"alpha_min": 0.5, "alpha_max": 0.4}, "alpha_min = 0.5 is above alpha_max = 0.4"),
        ("fedwmsam", {"alpha": 1}, "alpha = 1"),
        ("fednsam", {"ascent": "descent"}, "should be 'gradient' or 'momentum'"),
        ("fedscam", {"pilot_batches": 0}, "pilot_batches = 0"),
    ],
)
def test_wrong_values_are_one_line(method, values, message):
    with pytest.raises(UserError) as caught:
        CATALOG[method].build({**example(CATALOG[method]), **values})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["fedgloss", "fedgmt", "fednsam"])
def test_methods_without_a_server_rate_refuse_one(method):
    with pytest.raises(UserError, match="has no server learning rate"):
        Problem(0).run(method, example(CATALOG[method]), server_lr=0.5)


def test_fedwmsams_perturbation_needs_its_momentum():
    with pytest.raises(UserError, match="perturbation fedwmsam needs the correction fedwmsam, not none"):
        compose({"perturbation": "fedwmsam"})


def test_radii_are_as_long_as_stated():
    """‖δ‖ = r_i of FedSCAM, and ρ₀ in FedGloSS's first round."""
    for method, values, length in (
        ("fedgloss", {**GLOSS, "rho_0": 0.05, "warmup": 4}, 0.05),
        ("fedscam", {"rho": 0.2, "radius_damping": 0}, 0.2),
    ):
        federation, lengths = Problem(3).federation(method, values), []
        state = federation.start(federation.objective.initial())
        federation.run_round(state, [0, 1], lambda i, k, w, delta, found=lengths: found.append(float(delta.norm())))
        assert lengths == pytest.approx([length] * 6)


def test_the_step_of_fedwmsams_target():
    """From the second step on ‖δ‖ = ρ, along w^t + k P_i − w; none in the first step."""
    federation, lengths = Problem(3).federation("fedwmsam", {"rho": 0.2, "alpha": 0.3}), []
    state = federation.start(federation.objective.initial())
    for active in ([0, 1], [1, 2]):
        lengths.clear()
        state, _ = federation.run_round(state, active, lambda i, k, w, delta: lengths.append(float(delta.norm())))
    assert lengths == pytest.approx([0, 0.2, 0.2] * 2)
    assert torch.equal(unit(vector(0, 0)), vector(0, 0))
