"""Switches and settings that the golden files hold at one value, worked out by hand."""

import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional as F

from bench.api import simulate
from bench.engine.objective import Layout
from bench.errors import UserError
from bench.methods.base import ClientRound, ServerRound
from bench.methods.corrections.dyn import DynamicRegulariser
from bench.methods.perturbations.asam import ASAM
from bench.methods.perturbations.gf import GF
from bench.methods.perturbations.sam import MixedSAM
from bench.methods.servers.average import AverageOrDirection
from bench.methods.servers.dyn import DynServer
from tests.problems import Problem, distance


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def server_round(**changes) -> ServerRound:
    """Two of four clients moved by (1, 0) and (0, 3), in 2 and 4 steps at rate 0.5, with weights 1/4 and 3/4."""
    given = {
        "round": 0,
        "w": vector(10, 20),
        "sent": vector(10, 20),
        "state": {"H_bar": vector(0, 0)},
        "updates": torch.stack([vector(1, 0), vector(0, 3)]),
        "uploads": {},
        "weights": vector(0.25, 0.75),
        "steps": vector(2, 4),
        "n_clients": 4,
        "lr": 0.5,
        "server_lr": 1.0,
    }
    return ServerRound(**{**given, **changes})


def client_round(**changes) -> ClientRound:
    layout = Layout(("head.weight", "head.bias"), ((1, 1), (1,)))
    given = {"seed": 0, "round": 0, "id": 0, "w_global": vector(0, 0), "received": {}, "state": {}}
    given |= {"first_time": False, "lr": 0.5, "steps": 2, "full_gradient": lambda w: w}
    return ClientRound(**{**given, "layout": layout, **changes})


def test_the_mean_update_is_weighted():
    """0.25 (1, 0) + 0.75 (0, 3) = (0.25, 2.25)."""
    assert torch.equal(server_round().mean_update, vector(0.25, 2.25))


def test_the_mean_direction_divides_by_each_clients_own_steps():
    """−[0.25 (1, 0)/(2·0.5) + 0.75 (0, 3)/(4·0.5)] = −(0.25, 1.125)."""
    assert torch.equal(server_round().mean_direction, vector(-0.25, -1.125))


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
        assert torch.equal(dyn.sent_model(vector(2, 3), client), sent)
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
    client, part = client_round(), ASAM(rho=0.5, eta_a=0.2, biases=biases)
    part.start(client)
    T, g = vector(*scale), vector(1, 2)
    delta = part.delta(vector(-3, 4), lambda w: g, client)
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
    part = GF(rho=0.1, rho_g=0.1, T_D=1.0, W=3, window_rule=rule)
    state = part.start_server(vector(0, 0))
    for indicator in history:
        moved = vector(2, 0) if indicator else vector(1, 0)  # D = 1 is not above T_D = 1: the test is strict
        given = server_round(w=vector(0, 0), state=state, updates=torch.stack([moved, moved]))
        part.aggregate(given)
        state = given.state
    assert float(part.broadcast(vector(1, 0), state)["c"]) == pytest.approx(c)


def test_fedgf_sends_the_point_that_is_uphill_of_the_last_step():
    """From w = (0, 0) to (3, 4): v = w − ρ_g (3, 4)/5."""
    part = GF(rho=0.1, rho_g=0.5, T_D=1.0, W=3)
    state = {"w_previous": vector(0, 0), "indicators": vector(1)}
    assert torch.allclose(part.broadcast(vector(3, 4), state)["v"], vector(2.7, 3.6))


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
    run = simulate("fedavg", {}, clients=clients, aggregation="samples", **options)
    together = simulate("fedavg", {}, clients=[(x[:4], y[:4])], **{**options, "participants": [[0]]})
    assert distance(run, together) < 1e-12
    default = simulate("fedavg", {}, clients=clients, **options)
    assert distance(run, default) == 0, "samples is FedAvg's own weighting"
    assert distance(run, simulate("fedavg", {}, clients=clients, aggregation="uniform", **options)) > 1e-6


def test_mini_batches_see_every_sample_equally_often():
    """Four steps of batch 2 on a linear loss surface of a tiny rate: the sum of one epoch's gradients, twice."""
    x, y = Problem(4).data()[0]
    x, y = x[:4], y[:4]
    model = Problem(4).model()
    start = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    options = {"model": model, "clients": [(x, y)], "participants": [[0]], "lr": 1e-7}
    batched = simulate("fedavg", {}, local_steps=4, batch_size=2, **options).global_params[0] - start
    gradients = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    expected = -4e-7 * torch.cat([g.reshape(-1) for g in gradients])
    assert torch.allclose(batched, expected, rtol=1e-4, atol=1e-12)


MISTAKES = [
    ({"aggregation": "sample"}, "aggregation = 'sample'"),
    ({"local_steps": 0}, "local_steps is 0: it must be at least 1"),
    ({"batch_size": 0}, "batch_size is 0"),
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
    with pytest.raises(UserError, match="client 1 has 0 inputs and 0 labels"):
        problem.run("fedavg", {}, clients=[data[0], (data[1][0][:0], data[1][1][:0])], participants=[[0]])
    with pytest.raises(UserError, match="BatchNorm"):
        problem.run("fedavg", {}, model=torch.nn.BatchNorm1d(4))
    with pytest.raises(UserError, match="dropout"):
        problem.run("fedavg", {}, model=torch.nn.Sequential(problem.model(), torch.nn.Dropout(0.5)))
    with pytest.raises(UserError, match="feddyn has no server step size"):
        problem.run("feddyn", {"lam": 0.1}, server_lr=0.5)


def test_components_refuse_what_is_out_of_range():
    for wrong in ({"rho": -1, "rho_g": 0, "T_D": 0, "W": 1}, {"rho": 0, "rho_g": 0, "T_D": 0, "W": 0}):
        with pytest.raises(ValidationError):
            GF(**wrong)
