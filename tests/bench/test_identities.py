"""Identities between methods, over random small problems: what must hold whatever the data."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils import skip_init

from bench.engine.federation import Steps
from bench.methods.base import unit
from bench.methods.catalog import CATALOG
from bench.methods.describe import example
from tests.problems import Problem, distance

EXACT = 1e-10
problems = st.integers(0, 10_000).map(Problem)
few = settings(max_examples=8, deadline=None)
step_settings = st.fixed_dictionaries(
    {"weight_decay": st.sampled_from([0.0, 0.01]), "clip": st.sampled_from([None, 0.3])}
)

# Each is (method, neutral hyper-parameters, the base that it reduces to, the base's hyper-parameters).
REDUCTIONS = [
    ("fedsam", {"rho": 0}, "fedavg", {}),
    ("fedasam", {"rho": 0, "eta_a": 0.2}, "fedavg", {}),
    ("mofedsam", {"rho": 0.2, "alpha": 1}, "fedsam", {"rho": 0.2}),
    ("fedgamma", {"rho": 0}, "scaffold", {}),
    ("fedlesam", {"rho": 0}, "fedavg", {}),
    ("fedlesam_s", {"rho": 0}, "scaffold", {}),
    ("fedlesam_s", {"rho": 0.1, "correction_weight": 0}, "fedlesam", {"rho": 0.1}),
    ("fedlesam_d", {"rho": 0, "lam": 0.3}, "feddyn", {"lam": 0.3}),
    ("fedspeed", {"rho": 0, "lam": 0.3}, "feddyn", {"lam": 0.3}),
    ("fedspeed", {"rho": 0.2, "lam": 0.3, "alpha": 0}, "feddyn", {"lam": 0.3}),
    ("feddyn", {"lam": 0, "server_correction": False}, "fedavg", {}),
    ("fedgf", {"rho": 0.2, "rho_g": 0.1, "T_D": 1e9, "W": 3}, "fedsam", {"rho": 0.2}),
]


@pytest.mark.parametrize(("method", "neutral", "base", "base_values"), REDUCTIONS, ids=str)
@few
@given(problem=problems, options=step_settings)
def test_reduces_to_its_base(method, neutral, base, base_values, problem, options):
    assert distance(problem.run(method, neutral, **options), problem.run(base, base_values, **options)) < EXACT


@few
@given(problem=problems)
def test_feddyn_without_lam_is_not_fedavg(problem):
    """The server still adds the mean dual."""
    assert distance(problem.run("feddyn", {"lam": 0}), problem.run("fedavg")) > 1e-4


@few
@given(problem=problems)
def test_first_scaffold_round_is_fedavgs(problem):
    first = [problem.run(m).global_params[0] for m in ("scaffold", "fedavg")]
    assert torch.allclose(*first, atol=EXACT)


@few
@given(problem=problems)
def test_scaffold_with_one_step_and_full_participation_is_fedavg(problem):
    options = {"participants": problem.everybody(), "local_steps": 1}
    assert distance(problem.run("scaffold", **options), problem.run("fedavg", **options)) < EXACT


@few
@given(problem=problems)
def test_feddyn_round_one_with_full_participation_doubles_the_mean_update(problem):
    options = {"participants": problem.everybody()[:1]}
    w0 = torch.nn.utils.parameters_to_vector(problem.model().parameters()).detach()
    prox = problem.run("feddyn", {"lam": 0.3, "server_correction": False}, **options).global_params[0]
    dyn = problem.run("feddyn", {"lam": 0.3}, **options).global_params[0]
    assert torch.allclose(dyn - w0, 2 * (prox - w0), atol=EXACT)


@pytest.mark.parametrize("method", ["fedavg", "fedsam", "fedasam"])
@few
@given(problem=problems)
def test_one_client_is_centralised_training(method, problem):
    """N = 1 with server step 1 is plain SGD, SAM or ASAM on that client's data: rounds do not matter."""
    values = {"fedavg": {}, "fedsam": {"rho": 0.1}, "fedasam": {"rho": 0.5, "eta_a": 0.2}}[method]
    one = {"clients": problem.data()[:1]}
    in_rounds = problem.run(method, values, participants=[[0]] * 4, local_steps=3, **one)
    at_once = problem.run(method, values, participants=[[0]], local_steps=12, **one)
    assert torch.allclose(in_rounds.global_params[-1], at_once.global_params[-1], atol=EXACT)


VALUES = {name: example(entry) for name, entry in CATALOG.items()}


@pytest.mark.parametrize("method", VALUES)
@few
@given(problem=problems)
def test_the_order_of_clients_does_not_matter(method, problem):
    """Clients are served by id; with ids reversed, the last comes first, and nothing but rounding changes."""
    last = problem.clients - 1
    renamed = problem.run(
        method,
        VALUES[method],
        clients=problem.data()[::-1],
        participants=[[last - i for i in active] for active in problem.some()],
    )
    assert distance(problem.run(method, VALUES[method]), renamed) < EXACT


@pytest.mark.parametrize("method", VALUES)
def test_a_round_changes_nothing_that_it_was_given(method):
    """The state before a round, down to the bit: broadcast vectors and clients' memories are never edited in place."""
    problem = Problem(5)
    federation = problem.federation(method, VALUES[method])
    state = federation.start(federation.objective.initial())
    for active in problem.some():
        before = copy.deepcopy(state)
        after, _ = federation.run_round(state, active)
        assert torch.equal(state.w, before.w)
        assert all(torch.equal(state.server[name], v) for name, v in before.server.items())
        assert all(torch.equal(state.clients[i][n], v) for i, vs in before.clients.items() for n, v in vs.items())
        idle = set(before.clients) - set(active)
        assert all(torch.equal(after.clients[i][n], v) for i in idle for n, v in before.clients[i].items())
        state = after


@few
@given(problem=problems)
def test_weighting_by_samples_is_uniform_for_equal_sizes(problem):
    equal = [(x[:5], y[:5]) for x, y in problem.data()]
    runs = [problem.run("fedavg", clients=equal, aggregation=a) for a in ("samples", "uniform")]
    assert distance(*runs) < EXACT


@pytest.mark.parametrize("method", VALUES)
def test_a_model_that_cannot_move_stays_finite(method):
    """Zero gradients and a server that does not move give zero perturbations, not NaN."""
    problem = Problem(3)
    flat = [(torch.zeros_like(x), torch.zeros_like(y)) for x, y in problem.data()]
    model = skip_init(torch.nn.Linear, 4, 1, dtype=torch.float64)  # one class: the loss is 0 everywhere
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    run = problem.run(method, VALUES[method], model=model, clients=flat)
    assert all(bool((w == 0).all()) for w in run.global_params)


@few
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20))
def test_unit_is_a_direction_or_zero(values):
    v = torch.tensor(values, dtype=torch.float64)
    length = float(torch.linalg.vector_norm(unit(v)))
    assert length == 0 if not v.any() else length == pytest.approx(1, abs=1e-6) or v.norm() < 1e-6


def test_clipping_bounds_the_direction_before_weight_decay():
    """|q| = 5 is clipped to 1; the decay term is added after it, unclipped."""
    w, q = torch.tensor([10.0, 0.0]), torch.tensor([3.0, 4.0])
    stepped = Steps(lr=1.0, weight_decay=0.1, clip=1.0).step(w, q, 1.0)
    assert torch.allclose(stepped, torch.tensor([10 - 0.6 - 1.0, -0.8]), atol=1e-6)
