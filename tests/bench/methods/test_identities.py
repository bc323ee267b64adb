"""Identities between methods, over random small problems: what must hold whatever the data."""

import copy
import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils import skip_init

from fedflat.bench.engine.method_costs import example
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.methods.base import unit
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.corrections.dyn import DynamicRegulariser
from fedflat.bench.methods.corrections.feddc import DriftCorrection
from tests.problems import Problem, distance
from tests.tiers import METHODS

EXACT = 1e-10
problems = st.integers(0, 10_000).map(Problem)
few = settings(max_examples=5, deadline=None)
step_settings = st.fixed_dictionaries(
    {"weight_decay": st.sampled_from([0.0, 0.01]), "clip": st.sampled_from([None, 0.3])}
)

pytestmark = pytest.mark.long

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
    ("fedgf", {"rho": 0.2, "rho_g": 0.1, "T_D": math.inf, "W": 3}, "fedsam", {"rho": 0.2}),
    ("fedgf", {"rho": 0.2, "rho_g": 0.1, "T_D": -1, "W": 3, "c": 0}, "fedsam", {"rho": 0.2}),
    ("mofedsam", {"rho": 0, "alpha": 0.3}, "fedcm", {"alpha": 0.3}),
    ("fedcm", {"alpha": 1}, "fedavg", {}),
    ("mimelite", {"alpha": 1}, "fedavg", {}),
    ("fedprox", {"lam": 0}, "fedavg", {}),
    ("fedavgm", {"beta": 0}, "fedavg", {}),
    ("fedacg", {"beta": 0, "lam": 0}, "fedavg", {}),
    ("fedacg", {"beta": 0, "lam": 0.3}, "fedprox", {"lam": 0.3}),
    ("fedrcl", {"weight_scl": 0, "weight_pen": 0}, "fedavg", {}),
    ("fedrobust", {"eta_psi": 0}, "fedavg", {}),
    ("adabest", {"mu": 0, "beta": 0}, "fedavg", {}),
    ("fedsmoo", {"rho": 0, "lam": 0.3}, "feddyn", {"lam": 0.3}),
    ("fedsmoo", {"rho": 0, "lam": 0.3, "regulariser": False}, "fedavg", {}),
    ("fedtoga", {"rho": 0, "lam": 0.3, "kappa": 0.7, "beta": 0}, "feddyn", {"lam": 0.3}),
    ("fedtoga", {"rho": 0.2, "lam": 0.3, "kappa": 0, "beta": 0}, "fedspeed", {"rho": 0.2, "lam": 0.3}),
    ("fedlesam_d", {"rho": 0.1, "lam": 0, "server_correction": False}, "fedlesam", {"rho": 0.1}),
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


@few
@given(problem=problems, options=step_settings)
def test_feddc_without_its_control_variates_is_feddyn(problem, options):
    class WithoutControl(DriftCorrection):
        def constant_pull(self, client):
            return DynamicRegulariser.constant_pull(self, client)

    components = replace(CATALOG["feddc"].components, correction=WithoutControl)
    without = replace(CATALOG["feddc"], components=components)
    assert (
        distance(problem.run(without, {"lam": 0.3}, **options), problem.run("feddyn", {"lam": 0.3}, **options)) < EXACT
    )
    assert distance(problem.run("feddc", {"lam": 0.3}), problem.run("feddyn", {"lam": 0.3})) > 1e-6


@few
@given(problem=problems, options=step_settings)
def test_scaffold_with_one_client_is_fedavg(problem, options):
    one = {"clients": problem.data()[:1], "participants": [[0]] * 4, **options}
    assert distance(problem.run("scaffold", **one), problem.run("fedavg", **one)) < EXACT


@few
@given(problem=problems)
def test_fedgf_with_full_interpolation_takes_all_gradients_at_the_global_model(problem):
    """T_D below every distance and radii 0: from round 1 on w_i⁺ = w^t − η Σ_k g(w^t), so three steps are one of 3η."""
    values = {"rho": 0, "rho_g": 0, "T_D": -1, "W": 1}
    everybody = {"participants": problem.everybody()}
    gf = problem.run("fedgf", values, **everybody).global_params
    model = problem.model()
    torch.nn.utils.vector_to_parameters(gf[0], model.parameters())
    one_step = problem.run("fedavg", model=model, participants=problem.everybody()[:1], local_steps=1, lr=0.3)
    assert torch.allclose(gf[1], one_step.global_params[0], atol=EXACT)


@few
@given(problem=problems, options=step_settings)
def test_fedgf_with_a_constant_c_of_one_is_that_of_a_threshold_below_all_distances(problem, options):
    values = {"rho": 0.2, "rho_g": 0.1, "W": 3}
    constant = problem.run("fedgf", {**values, "T_D": math.inf, "c": 1}, **options)
    assert distance(constant, problem.run("fedgf", {**values, "T_D": -1}, **options)) < EXACT
    half = problem.run("fedgf", {**values, "T_D": math.inf, "c": 0.5}, **options)
    assert distance(half, constant) > 1e-6


DUAL_METHODS = {"feddyn": {"lam": 0.3}, "feddc": {"lam": 0.3}, "fedspeed": {"lam": 0.3, "rho": 0.1},
                "fedsmoo": {"lam": 0.3, "rho": 0.1}, "fedlesam_d": {"lam": 0.3, "rho": 0.1},
                "fedtoga": {"lam": 0.3, "rho": 0.1, "kappa": 1, "beta": 0.9},
                "fedgloss": {"lam": 0.3, "rho": 0.1, "rho_g": 0.2, "warmup": 2},
                "fedgmt": {"lam": 0.3, "ema_decay": 0.9}}  # fmt: skip
CONTROL_METHODS = {"scaffold": {}, "feddc": {"lam": 0.3}, "fedgamma": {"rho": 0.1}, "fedlesam_s": {"rho": 0.1},
                   "fedwmsam": {"rho": 0.1, "alpha": 0.3, "alpha_rate": 0.2}}  # fmt: skip


def check_mean_of_clients(problem, method, values, client_vector, server_vector, **options) -> list[torch.Tensor]:
    """The server's vector is the mean of all clients' own, also of those that have none; their sum in each round."""
    federation = problem.federation(method, values, **options)
    state, sums = federation.start(federation.objective.initial()), []
    for active in problem.some():
        state, _ = federation.run_round(state, active)
        sums.append(torch.stack([vectors[client_vector] for vectors in state.clients.values()]).sum(0))
        assert torch.allclose(state.server[server_vector], sums[-1] / problem.clients, atol=EXACT)
    return sums


@pytest.mark.parametrize(
    ("method", "values", "client_vector", "server_vector"),
    [(m, v, "H", "H_bar") for m, v in DUAL_METHODS.items()] + [(m, v, "c_i", "c") for m, v in CONTROL_METHODS.items()],
)
@few
@given(problem=problems, options=step_settings)
def test_the_servers_vector_is_the_mean_of_all_clients_own(
    method, values, client_vector, server_vector, problem, options
):
    """Under partial participation, after every round."""
    check_mean_of_clients(problem, method, values, client_vector, server_vector, **options)


@few
@given(problem=problems, lam=st.floats(0.01, 1))
def test_prox_split_matters_only_where_clipping_does(problem, lam):
    for method, others in {**DUAL_METHODS, "fedprox": {}}.items():
        if method == "fedgmt":  # it has no proximal term
            continue
        values = {**others, "lam": lam}
        states = {}
        for clip, split in itertools.product((None, 1e-3), (False, True)):
            federation = problem.federation(method, values, clip=clip, prox_split=split, weight_decay=0.01)
            state = federation.start(federation.objective.initial())
            for active in problem.some():
                state, _ = federation.run_round(state, active)
            states[clip, split] = state.w
        assert torch.allclose(states[None, False], states[None, True], atol=EXACT), method
        assert not torch.allclose(states[1e-3, False], states[1e-3, True], atol=1e-6), method


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


@pytest.mark.parametrize("method", METHODS)
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


@pytest.mark.parametrize("method", VALUES)
def test_a_model_that_cannot_move_stays_finite(method):
    """Zero gradients and a server that does not move give zero perturbations, not NaN."""
    problem = Problem(3)
    flat = [(torch.zeros_like(x), torch.zeros_like(y)) for x, y in problem.data()]
    # The inputs are zero and the model has no bias: the loss is log 2 everywhere.
    model = skip_init(torch.nn.Linear, 4, 2, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(model.weight)
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
    stepped = StepSettings(lr=1.0, weight_decay=0.1, clip=1.0).step(w, q, 1.0)
    assert torch.allclose(stepped, torch.tensor([10 - 0.6 - 1.0, -0.8]), atol=1e-6)
