"""Switches and settings that the golden files hold at one value, worked out by hand."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from fedflat.bench.engine.local import MiniBatchGradient
from fedflat.bench.engine.objective import Objective
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import ClientRound, ServerRound
from fedflat.bench.methods.corrections.adabest import FadingMemory
from fedflat.bench.methods.corrections.dyn import DynamicRegulariser
from fedflat.bench.methods.losses.affine_shift import AffineShift
from fedflat.bench.methods.losses.relaxed_contrastive import RelaxedContrastive, feature_levels
from fedflat.bench.methods.perturbations.asam import ASAM
from fedflat.bench.methods.perturbations.gf import GF
from fedflat.bench.methods.perturbations.lesam import LESAM
from fedflat.bench.methods.perturbations.sam import MixedSAM
from fedflat.bench.methods.perturbations.smoo import SMOO
from fedflat.bench.methods.perturbations.toga import TOGA
from fedflat.bench.methods.servers.adaptive import AdaGrad, Adam, Yogi
from fedflat.bench.methods.servers.average import AverageOrDirection
from fedflat.bench.methods.servers.dyn import DynServer
from fedflat.bench.methods.servers.look_ahead import LookAhead
from fedflat.bench.models import build_model
from fedflat.bench.models.architectures.cnn_gn import CNNGNChoice
from fedflat.bench.numerics.flat import FlatLayout
from fedflat.simulation import simulate
from tests.problems import Problem, distance


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def server_round(**changes) -> ServerRound:
    """Two of four clients moved by (1, 0) and (0, 3), in 2 and 4 steps at rate 0.5, with weights 1/4 and 3/4."""
    given = {
        "round": 0,
        "w": vector(10, 20),
        "start": vector(10, 20),
        "state": {"H_bar": vector(0, 0)},
        "updates": torch.stack([vector(1, 0), vector(0, 3)]),
        "uploads": {},
        "weights": vector(0.25, 0.75),
        "steps": vector(2, 4),
        "n_clients": 4,
        "lr": 0.5,
        "server_lr": 1.0,
    }
    given = {**given, **changes}
    given.setdefault("sent", given["updates"])
    given.setdefault("full_rate_steps", given["steps"])
    return ServerRound(**given)


def client_round(**changes) -> ClientRound:
    layout = FlatLayout(("head.weight", "head.bias"), ((1, 1), (1,)))
    given = {"seed": 0, "round": 0, "id": 0, "w_global": vector(0, 0), "received": {}, "state": {}}
    given |= {
        "first_time": torch.tensor(False),
        "lr": 0.5,
        "steps": 2,
        "participants": 1,
        "full_gradient": lambda w: w,
        "mini_batch_gradient": lambda w, step: w,
        "noise": {},
        "input_shape": (1,),
    }
    given = {**given, "layout": layout, **changes}
    given.setdefault("full_rate_steps", given["steps"])
    return ClientRound(**given)


def test_the_mean_update_is_weighted():
    """0.25 (1, 0) + 0.75 (0, 3) = (0.25, 2.25)."""
    assert torch.equal(server_round().mean_update, vector(0.25, 2.25))


def test_the_mean_direction_divides_by_each_clients_own_steps():
    """−[0.25 (1, 0)/(2·0.5) + 0.75 (0, 3)/(4·0.5)] = −(0.25, 1.125)."""
    assert torch.equal(server_round().mean_direction, vector(-0.25, -1.125))


def test_the_mean_direction_divides_by_the_sum_of_the_rates():
    """−[0.25 (1, 0)/(1·0.5) + 0.75 (0, 3)/(3·0.5)], where 2 and 4 falling rates add up to 1 and 3 full ones."""
    falling = server_round(full_rate_steps=vector(1, 3))
    assert torch.equal(falling.mean_direction, vector(-0.5, -1.5))
    assert torch.equal(falling.mean_step, vector(-0.125, -0.5625))


def test_server_step_average_and_literal():
    """w + η_g Δ, and w − η_g D, at η_g = 0.5."""
    average = AverageOrDirection().step(server_round(server_lr=0.5))
    literal = AverageOrDirection(server_step="literal").step(server_round(server_lr=0.5))
    assert torch.equal(average, vector(10.125, 21.125))
    assert torch.equal(literal, vector(10.125, 20.5625))


def test_the_mean_dual_counts_all_clients_and_ignores_weights():
    """H̄ = (1, 3)/4; w^{t+1} = (10.25, 22.25) + H̄."""
    given = server_round()
    stepped = DynServer().step(given)
    assert torch.equal(given.state["H_bar"], vector(0.25, 0.75))
    assert torch.equal(stepped, vector(10.5, 23.0))


def test_with_active_duals_clients_send_them_within_their_models():
    """y_i = w_i⁺ + H_i with w_i⁺ = (2, 3) and H_i = (1, 1) + (2, 3); the server averages them and keeps none."""
    for server_dual, sent in (("all", vector(2, 3)), ("active", vector(5, 7))):
        client = client_round(state={"H": vector(1, 1)})
        dyn = DynamicRegulariser(lam=0.1, server_dual=server_dual)
        dyn.finish(vector(2, 3), client)
        assert torch.equal(dyn.uploaded_model(vector(2, 3), client), sent)
    server = DynServer(server_dual="active")
    assert server.start_server(vector(0, 0)) == {}
    assert torch.equal(server.step(server_round()), vector(10.25, 22.25))


def test_fedspeed_mixes_plain_and_perturbed_gradient():
    """On F(w) = w₁² + w₂² at (3, 4): g₁ = (6, 8), δ = (0.6, 0.8), g₂ = 2 (3.6, 4.8); α = 0.25."""
    mixed = MixedSAM(rho=1.0, alpha=0.25).gradient(vector(3, 4), lambda w: 2 * w, client_round())
    assert torch.allclose(mixed, 0.75 * vector(6, 8) + 0.25 * vector(7.2, 9.6))


@pytest.mark.parametrize(("biases", "scale"), [("plain", (3.2, 1.0)), ("adaptive", (3.2, 4.2))])
def test_asam_scales_weights_and_perhaps_biases(biases, scale):
    """T = |w| + 0.2 on the weight −3, and on the bias 4 only if adaptive; δ = ρ T² g/‖T g‖."""
    client, component = client_round(), ASAM(rho=0.5, eta_a=0.2, biases=biases)
    component.start(client)
    T, g = vector(*scale), vector(1, 2)
    delta = component.delta(vector(-3, 4), lambda w: g, client)
    assert torch.allclose(delta, 0.5 * T * T * g / (T * g).norm())


@pytest.mark.parametrize(
    ("rule", "history", "c"),
    [
        ("available", (1,), 1),
        ("available", (1, 0, 1, 1), 2 / 3),
        ("eq16", (1,), 1 / 3),
        ("eq16", (1, 0, 1, 1), 2 / 3),
        ("alg1", (1,), 1 / 2),  # entries 0, I_0
        ("alg1", (1, 0, 1), 2 / 4),  # entries 0, I_0, I_1, I_2
        ("alg1", (1, 0, 1, 1), 3 / 4),  # the last W + 1 = 4 indicators
        ("alg1", (1, 0, 0, 1, 1), 2 / 4),
    ],
)
def test_fedgf_windows(rule, history, c):
    """W = 3; each indicator is pushed as the server does it."""
    component = GF(rho=0.1, rho_g=0.1, T_D=1.0, W=3, window_rule=rule)
    state = component.start_server(vector(0, 0))
    for indicator in history:
        moved = vector(2, 0) if indicator else vector(1, 0)  # D = 1 is not above T_D = 1: the test is strict
        given = server_round(w=vector(0, 0), state=state, updates=torch.stack([moved, moved]))
        component.aggregate(given)
        state = given.state
    assert float(component.broadcast(vector(1, 0), state, 0)["c"]) == pytest.approx(c)


@pytest.mark.parametrize("c", [0, 0.5, 1])
def test_fedgf_with_a_constant_c_sends_it_whatever_the_distances(c):
    component = GF(rho=0.1, rho_g=0.1, T_D=1.0, W=3, c=c)
    for indicators in (vector(0), vector(1, 1)):
        assert (
            float(component.broadcast(vector(1, 0), {"w_previous": vector(0, 0), "indicators": indicators}, 0)["c"])
            == c
        )
    assert component.broadcast(vector(1, 0), component.start_server(vector(1, 0)), 0) == {}, "the first round is SAM's"


def test_fedgf_sends_the_point_that_is_uphill_of_the_last_step():
    """From w = (0, 0) to (3, 4): v = w − ρ_g (3, 4)/5."""
    component = GF(rho=0.1, rho_g=0.5, T_D=1.0, W=3)
    state = {"w_previous": vector(0, 0), "indicators": vector(1)}
    assert torch.allclose(component.broadcast(vector(3, 4), state, 0)["v"], vector(2.7, 3.6))


def test_server_lr_scales_the_step():
    problem = Problem(1, rounds=1)
    whole, half = (problem.run("fedavg", server_lr=rate).global_params[0] for rate in (1.0, 0.5))
    start = torch.nn.utils.parameters_to_vector(problem.model().parameters()).detach()
    assert torch.allclose(half - start, (whole - start) / 2)


def test_the_learning_rate_decays_from_round_to_round():
    """η_t = 0.1 · 0.5^t: round 1 of the decayed run is a round at 0.05 from where round 0 ended."""
    problem = Problem(2, rounds=2)
    federation = problem.federation("fedavg", {}, lr_decay=0.5)
    assert [federation.learning_rate(t) for t in range(3)] == [0.1, 0.05, 0.025]
    first, _ = federation.run_round(federation.start(federation.objective.initial()), [0, 1])
    second, measured = federation.run_round(first, [0, 1])
    slower = problem.federation("fedavg", {}, lr=0.05)
    again, _ = slower.run_round(slower.start(first.w), [0, 1])
    assert torch.equal(second.w, again.w)
    assert measured["lr"] == 0.05


def test_samples_weigh_clients_by_their_size():
    """One step of two clients with 1 and 3 samples: the mean update is the gradient step on all four."""
    x, y = Problem(3).data()[0]
    clients = [(x[:1], y[:1]), (x[1:4], y[1:4])]
    model = Problem(3).model()
    options = {"model": model, "participants": [[0, 1]], "local_steps": 1, "lr": 0.1}
    run = simulate("fedavg", clients=clients, aggregation="samples", **options)
    together = simulate("fedavg", clients=[(x[:4], y[:4])], **{**options, "participants": [[0]]})
    assert distance(run, together) < 1e-12
    default = simulate("fedavg", clients=clients, **options)
    assert distance(run, default) == 0, "samples is FedAvg's own weighting"
    assert distance(run, simulate("fedavg", clients=clients, aggregation="uniform", **options)) > 1e-6


def test_mini_batches_see_every_sample_equally_often():
    """Four steps of batch 2 on a linear loss surface of a tiny rate: the sum of one epoch's gradients, twice."""
    x, y = Problem(4).data()[0]
    x, y = x[:4], y[:4]
    model = Problem(4).model()
    start = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    options = {"model": model, "clients": [(x, y)], "participants": [[0]], "lr": 1e-7}
    batched = simulate("fedavg", local_steps=4, batch_size=2, **options).global_params[0] - start
    gradients = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    expected = -4e-7 * torch.cat([g.reshape(-1) for g in gradients])
    assert torch.allclose(batched, expected, rtol=1e-4, atol=1e-12)


MISTAKES = [
    ({"aggregation": "sample"}, "aggregation = 'sample'"),
    ({"local_steps": 0}, "local_steps = 0 (allowed: whole numbers from 1"),
    ({"batch_size": 0}, "batch_size = 0"),
    ({"lr": -1.0}, "lr = -1.0"),
    ({"participants": [[0, 9]]}, "participants of round 0 are [0, 9]"),
    ({"participants": [[]]}, "at least one"),
    ({"participants": [[1, 1]]}, "distinct ids"),
    ({"server_lr": 0.0}, "server_lr = 0.0"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES, ids=lambda v: str(v)[:30])
def test_simulate_refuses_what_makes_no_sense(change, message):
    with pytest.raises(UserError) as caught:
        Problem(0).run("fedavg", {}, **change)
    assert message in str(caught.value)


def test_simulate_refuses_clients_without_data_and_models_with_state():
    problem = Problem(0)
    data = problem.data()
    with pytest.raises(UserError, match=r"client 1: inputs have the shape \[0, 4\]"):
        problem.run("fedavg", {}, clients=[data[0], (data[1][0][:0], data[1][1][:0])], participants=[[0]])
    with pytest.raises(UserError, match="BatchNorm"):
        problem.run("fedavg", {}, model=torch.nn.BatchNorm1d(4))
    with pytest.raises(UserError, match="dropout"):
        problem.run("fedavg", {}, model=torch.nn.Sequential(problem.model(), torch.nn.Dropout(0.5)))
    with pytest.raises(UserError, match="feddyn has no server learning rate"):
        problem.run("feddyn", {"lam": 0.1}, server_lr=0.5)


def test_components_refuse_what_is_out_of_range():
    for wrong in ({"rho": -1, "rho_g": 0, "T_D": 0, "W": 1}, {"rho": 0, "rho_g": 0, "T_D": 0, "W": 0}):
        with pytest.raises(ValidationError):
            GF(**wrong)


ADAPTIVE = [
    # One coordinate with Δ = 3 against τ = 2: τ² = 4 < Δ² = 9, and one with Δ = 1: τ² > Δ².
    (AdaGrad(beta1=0.5, tau=2.0), (4 + 9, 4 + 1)),
    (Adam(beta1=0.5, beta2=0.75, tau=2.0), (0.75 * 4 + 0.25 * 9, 0.75 * 4 + 0.25 * 1)),
    (Yogi(beta1=0.5, beta2=0.75, tau=2.0), (4 + 0.25 * 9, 4 - 0.25 * 1)),
]


@pytest.mark.parametrize(("server", "v"), ADAPTIVE, ids=lambda component: getattr(component, "name", ""))
def test_the_first_two_adaptive_steps(server, v):
    """m = (1 − β₁)Δ and w + η_g m/(√v + τ); the second step with Δ = 0 keeps β₁m and decays v as the method does."""
    updates = torch.stack([vector(3, 1), vector(3, 1)])
    first = server_round(state=server.start_server(vector(10, 20)), updates=updates, server_lr=0.5)
    step = server.step(first)
    m, root = 0.5 * vector(3, 1), torch.tensor(v, dtype=torch.float64).sqrt()
    assert torch.allclose(first.state["v"], root**2)
    assert torch.allclose(step, vector(10, 20) + 0.5 * m / (root + 2))

    second = server_round(state=first.state, updates=torch.zeros_like(updates), round=1)
    server.step(second)
    decayed = root**2 * (0.75 if type(server) is Adam else 1)
    assert torch.allclose(second.state["m"], 0.5 * m)
    assert torch.allclose(second.state["v"], decayed)


def test_adam_with_bias_correction_from_zero_is_torchs():
    """Three rounds on the pseudo-gradient −Δ."""
    server = Adam(beta1=0.8, beta2=0.9, tau=1e-3, init_v="zero", bias_correction=True)
    w, state = vector(1, -1), server.start_server(vector(1, -1))
    theirs = w.clone().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=0.1, betas=(0.8, 0.9), eps=1e-3)
    for t, update in enumerate([vector(1, 2), vector(-3, 0.5), vector(0.1, 0)]):
        rounds = server_round(w=w, start=w, state=state, updates=torch.stack([update] * 2), server_lr=0.1, round=t)
        w, state = server.step(rounds), rounds.state
        theirs.grad = -update
        optimizer.step()
        assert torch.allclose(w, theirs.detach(), atol=1e-12)


def test_yogi_stays_put_where_the_square_equals_v():
    server = Yogi(tau=2.0)
    given = server_round(state=server.start_server(vector(0, 0)), updates=torch.stack([vector(2, 2)] * 2))
    server.step(given)
    assert torch.equal(given.state["v"], vector(4, 4))


def test_adabests_memory_fades_while_the_client_is_away():
    """Active at rounds 0 and 3: h = 0.1 (0 − (2, 4)), then h/3 + 0.1 (0 − (2, 4))."""
    component = FadingMemory(mu=0.1)
    client = client_round(state=component.start_client(vector(0, 0)))
    component.finish(vector(2, 4), client)
    assert torch.allclose(client.state["h"], vector(-0.2, -0.4))
    later = client_round(state=client.state, round=3)
    assert torch.allclose(component.direction(vector(1, 1), vector(0, 0), later), vector(1.2, 1.4))
    component.finish(vector(2, 4), later)
    assert torch.allclose(later.state["h"], vector(-0.2 / 3 - 0.2, -0.4 / 3 - 0.4))
    assert float(later.state["last_round"]) == 3


def test_fedacg_looks_ahead_and_ends_at_the_mean_of_the_local_models():
    """m = (4, 0), β = 0.5: clients start at (12, 20); m ← (2, 0) + Δ with Δ = (0.25, 2.25)."""
    server = LookAhead(beta=0.5)
    state = {"m": vector(4, 0)}
    sent = server.broadcast_model(vector(10, 20), state, 0)
    assert torch.equal(sent, vector(12, 20))
    given = server_round(state=state, start=sent)
    assert torch.equal(server.step(given), vector(10 + 2.25, 22.25))
    assert torch.equal(server.step(server_round(state={"m": vector(4, 0)}, start=sent)), sent + vector(0.25, 2.25))


def test_smoos_first_step_is_sams_and_its_dual_then_bends_it():
    """g = (3, 4), ρ = 1: δ = (0.6, 0.8) = μ; then g − μ = (2.4, 3.2), the same direction; s̃ = μ − δ = δ."""
    component = SMOO(rho=1.0)
    client = client_round(received={"s": vector(0, 0)}, state={"mu": vector(0, 0)})
    component.start(client)
    first = component.delta(vector(0, 0), lambda w: vector(3, 4), client)
    assert torch.allclose(first, vector(0.6, 0.8))
    component.delta(vector(0, 0), lambda w: vector(3, 4), client)
    component.finish(vector(0, 0), client)
    assert torch.allclose(client.state["mu"], vector(1.2, 1.6))
    assert torch.allclose(client.upload["s_i"], vector(0.6, 0.8))
    bent = component.delta(vector(0, 0), lambda w: vector(1.2, 2.6), client)
    assert torch.allclose(bent, vector(0, 1))


@pytest.mark.parametrize(("direction", "expected"), [("local", (1, 0)), ("neighbour", (0, 1)), ("fusion", (0.6, 0.8))])
def test_togas_directions(direction, expected):
    """Own gradient (3, 0), the step's before (0, 4), A = 0."""
    component = TOGA(rho=1.0, kappa=1.0, direction=direction)
    client = client_round(received={"A": vector(0, 0)}, scratch={"neighbour": vector(0, 4)})
    assert torch.allclose(component.delta(vector(0, 0), lambda w: vector(3, 0), client), vector(*expected))


def test_togas_last_update_per_step_and_as_a_gradient():
    """−(0.25 (1, 0)/2 + 0.75 (0, 3)/4), over η = 0.5 with etaK."""
    for scale, factor in (("K", 1), ("etaK", 2)):
        given = server_round()
        TOGA(rho=0.1, kappa=1.0, scale_A=scale).aggregate(given)
        assert torch.allclose(given.state["A"], -factor * vector(0.125, 0.5625))


def test_lesams_released_estimates():
    """Two tensors of one number each, u = (3, −1): both take u/4 uphill of the step; the literal one shifts tensors."""
    client = client_round(received={"last_step": vector(3, -1)})
    for estimate in ("released_intent", "released_literal"):
        component = LESAM(rho=0.4, estimate=estimate)
        component.start(client)
        assert torch.allclose(component.delta(vector(0, 0), lambda w: w, client), vector(-0.3, 0.1))


def test_lesams_literal_release_shifts_whole_tensors_by_the_first_numbers():
    layout = FlatLayout(("a", "b"), ((3,), (2,)))
    u = torch.tensor([3.0, -1.0, 7.0, 8.0, 9.0], dtype=torch.float64)
    client = client_round(received={"last_step": u}, w_global=torch.zeros_like(u), layout=layout)
    component = LESAM(rho=0.4, estimate="released_literal")
    component.start(client)
    shifted = torch.tensor([-0.3, -0.3, -0.3, 0.1, 0.1], dtype=torch.float64)
    assert torch.allclose(component.delta(u, lambda w: w, client), shifted)


def test_the_relaxed_contrastive_loss_of_three_samples():
    """Unit features at angles 0°, 60° (one class) and 90°; T = 1, one negative: s₀₁ = 0.5, s₀₂ = 0, s₁₂ = √3/2."""
    z = torch.tensor([[1.0, 0.0], [0.5, math.sqrt(3) / 2], [0.0, 1.0]], dtype=torch.float64)
    y = torch.tensor([0, 0, 1])
    near = math.sqrt(3) / 2

    def contrast(positive: float, negative: float) -> float:
        return -math.log(math.exp(positive) / (math.exp(positive) + math.exp(negative)))

    contrastive = (contrast(0.5, 0.0) + contrast(0.5, near) + contrast(1.0, near)) / 3
    alone = math.log(1 + math.exp(-2))
    for threshold, pair in ((0.4, math.log(1 + math.exp(-0.5))), (0.7, alone)):
        component = RelaxedContrastive(temperature=1.0, threshold=threshold, k_neg=1, weight_scl=2.0, weight_pen=3.0)
        expected = 2 * contrastive + 3 * (pair + pair + alone) / 3
        assert float(component.level_loss(z, y)) == pytest.approx(expected)


def test_fedrobusts_ascent_by_finite_differences():
    """After one step Λ and δ have moved along the gradient of ℓ − λ₁‖Λ − I‖² − λ₂‖δ‖²."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 3, 2, 2, generator=generator).double()
    y = torch.tensor([0, 1, 1, 0])
    module = skip_init(nn.Linear, 12, 2, dtype=torch.float64)
    with torch.no_grad():
        module.weight.copy_(torch.randn(2, 12, generator=generator))
        module.bias.zero_()
    objective = Objective(nn.Sequential(nn.Flatten(), module))
    component = AffineShift(eta_psi=0.1, lam_1=0.5, lam_2=0.2)
    w = objective.initial()
    client = client_round(w_global=w)
    client.scratch["Lambda"] = torch.eye(3).double() + 0.1
    client.scratch["delta"] = torch.full((3, 2, 2), 0.2).double()

    def f(Lambda: torch.Tensor, delta: torch.Tensor) -> float:
        moved = torch.einsum("dc,bchw->bdhw", Lambda, x) + delta
        penalty = 0.5 * float(((Lambda - torch.eye(3)) ** 2).sum()) + 0.2 * float((delta**2).sum())
        return objective.loss(w, [(moved, y)]) - penalty

    before = {name: client.scratch[name].clone() for name in ("Lambda", "delta")}
    MiniBatchGradient(objective.gradients, component, x, y, None, client.scratch)(w)
    component.step_taken(client)
    for name, index in (("Lambda", (0, 2)), ("delta", (1, 0, 1))):
        bump = torch.zeros_like(before[name])
        bump[index] = 1e-5
        slope = (f(**{**before, name: before[name] + bump}) - f(**{**before, name: before[name] - bump})) / 2e-5
        moved = client.scratch[name][index] - before[name][index]
        assert float(moved) == pytest.approx(0.1 * slope, abs=1e-8)


def test_fedrcl_asks_a_convolutional_model_for_its_feature_levels():
    assert len(feature_levels(build_model(CNNGNChoice(), (1, 8, 8), 10, seed=0))) == 2
    dense = skip_init(nn.Linear, 2, 3), nn.Tanh(), skip_init(nn.Linear, 3, 2)
    assert feature_levels(nn.Sequential(*dense)) == [dense[0]]
    assert feature_levels(dense[0]) == []
    with pytest.raises(UserError, match="needs a model with feature_levels"):
        feature_levels(nn.Sequential(skip_init(nn.Conv2d, 1, 2, 3), nn.Flatten(), dense[0]))
