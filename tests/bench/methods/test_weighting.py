"""What the aggregation weights p_i weigh, and what they must not: on clients of unequal size.

Averages of models, updates and directions are weighed; sums of duals and of control variates, FedSMOO's s and FedGF's
distance are plain, whatever the weights.
"""

import pytest
import torch

from fedflat.bench.engine.federation import FederationState
from fedflat.bench.engine.local import LocalResult
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import unit
from fedflat.bench.methods.corrections.client_momentum import ClientMomentum
from fedflat.bench.methods.corrections.feddc import DriftCorrection
from fedflat.bench.methods.corrections.mime import ServerMomentumMimic
from fedflat.bench.methods.corrections.scaffold import ControlVariates
from fedflat.bench.methods.corrections.toga_dual import CorrectedDual
from fedflat.bench.methods.perturbations.gf import GF
from fedflat.bench.methods.perturbations.smoo import SMOO
from fedflat.bench.methods.recipe import Components, Recipe
from fedflat.bench.methods.servers.average import Average
from fedflat.bench.methods.servers.dyn import DynServer
from tests.bench.methods.test_by_hand import client_round, server_round, vector
from tests.bench.methods.test_identities import CONTROL_METHODS, DUAL_METHODS, check_mean_of_clients
from tests.problems import Problem

# By hand: of four clients, two are active with weights 1/4 and 3/4.


@pytest.mark.parametrize("component", [ControlVariates(), DriftCorrection(lam=0.1)], ids=lambda given: given.name)
def test_the_control_variate_moves_by_the_plain_sum_over_all_clients(component):
    """c = (1, 1) + [(4, 0) + (0, 8)]/4."""
    uploads = {"control_change": torch.stack([vector(4, 0), vector(0, 8)])}
    given = server_round(state={"c": vector(1, 1)}, uploads=uploads)
    component.aggregate(given)
    assert torch.equal(given.state["c"], vector(2, 3))


def test_fedsmoos_common_perturbation_is_a_plain_mean():
    """ρ times the direction of (6, 0)/2 + (0, 8)/2 = (3, 4)."""
    uploads = {"s_i": torch.stack([vector(6, 0), vector(0, 8)])}
    given = server_round(state={"s": vector(0, 0)}, uploads=uploads)
    SMOO(rho=0.5).aggregate(given)
    assert torch.allclose(given.state["s"], vector(0.3, 0.4))


@pytest.mark.parametrize(("threshold", "indicator"), [(1.9, 1), (2.0, 0), (2.4, 0)])
def test_fedgfs_distance_is_a_plain_mean(threshold, indicator):
    """Moved by 1 and by 3: D = 2, where weights would make it 2.5 (and the root of squares 2.2)."""
    component = GF(rho=0.1, rho_g=0.1, T_D=threshold, W=3)
    given = server_round(state=component.start_server(vector(10, 20)))
    component.aggregate(given)
    assert given.state["indicators"].tolist() == [indicator]


def test_mimelites_momentum_weighs_the_full_gradients():
    """s = 0.5 [0.25 (8, 0) + 0.75 (0, 8)] + 0.5 (2, 2)."""
    uploads = {"full_gradient": torch.stack([vector(8, 0), vector(0, 8)])}
    given = server_round(state={"s_mime": vector(2, 2)}, uploads=uploads)
    ServerMomentumMimic(alpha=0.5).aggregate(given)
    assert torch.equal(given.state["s_mime"], vector(2, 4))


def test_fedcms_direction_is_weighed_and_per_step():
    """−[0.25 (1, 0)/(2·0.5) + 0.75 (0, 3)/(4·0.5)]."""
    given = server_round()
    ClientMomentum(alpha=0.1).aggregate(given)
    assert torch.equal(given.state["D"], vector(-0.25, -1.125))


@pytest.mark.parametrize(("scale", "A"), [("K", (-0.125, -0.5625)), ("etaK", (-0.25, -1.125))])
def test_fedtogas_last_update_is_weighed(scale, A):
    """−[0.25 (1, 0)/2 + 0.75 (0, 3)/4], over η = 0.5 with etaK."""
    given = server_round()
    CorrectedDual(lam=0.1, beta=0.9, scale_A=scale).aggregate(given)
    assert torch.equal(given.state["A"], vector(*A))


@pytest.mark.parametrize(("dual_norm", "H_bar"), [("N", (2.25, 1.75)), ("M", (2.5, 2.5))])
def test_the_mean_dual_is_a_plain_sum_over_all_or_over_the_active_clients(dual_norm, H_bar):
    """H̄ = (2, 1) + (1, 3)/4, or over 2; the models are weighed, w^{t+1} = (10.25, 22.25) + H̄."""
    given = server_round(state={"H_bar": vector(2, 1)})
    stepped = DynServer(dual_norm=dual_norm).step(given)
    assert torch.equal(given.state["H_bar"], vector(*H_bar))
    assert torch.equal(stepped, vector(10.25, 22.25) + vector(*H_bar))


@pytest.mark.parametrize(("control", "c_i"), [("accumulated", (-6, -7)), ("last_update", (-2, -3))])
def test_feddcs_two_controls(control, c_i):
    """Moved by (2, 3) in 2 steps at 0.5: c_i⁺ = (1, 1) − (5, 5) − (2, 3), or −(2, 3); its change is what is sent."""
    client = client_round(state={"H": vector(0, 0), "c_i": vector(1, 1)}, received={"control": vector(5, 5)})
    DriftCorrection(lam=0.1, control=control).finish(vector(2, 3), client)
    assert torch.equal(client.state["c_i"], vector(*c_i))
    assert torch.equal(client.upload["control_change"], vector(*c_i) - vector(1, 1))


# In federations: four clients with 5, 7, 9 and 11 samples, two active, three steps at rate 0.1.


def names(value: object) -> str:
    return value if isinstance(value, str) else ""


INVARIANTS = [
    *[(m, v, "H", "H_bar") for m, v in DUAL_METHODS.items()],
    *[(m, v, "c_i", "c") for m, v in CONTROL_METHODS.items()],
    ("feddc", {"lam": 0.3, "control": "last_update"}, "c_i", "c"),
]


@pytest.mark.parametrize(("method", "values", "client_vector", "server_vector"), INVARIANTS, ids=names)
def test_the_servers_vector_is_the_mean_of_all_clients_own_under_unequal_weights(
    method, values, client_vector, server_vector
):
    sums = check_mean_of_clients(Problem(6), method, values, client_vector, server_vector, aggregation="samples")
    assert all(float(total.norm()) > 1e-3 for total in sums)


class Round:
    """One round of two clients, its parts at hand: the state before and after, and what the clients sent."""

    def __init__(self, before: FederationState, after: FederationState, sent: list[LocalResult], p: torch.Tensor):
        self.before, self.after, self.sent, self.p = before, after, sent, p

    def uploads(self, name: str) -> torch.Tensor:
        return torch.stack([result.upload[name] for result in self.sent])

    @property
    def models(self) -> torch.Tensor:
        """w_i⁺."""
        return torch.stack([result.w for result in self.sent])

    @property
    def duals(self) -> torch.Tensor:
        """The updated H_i."""
        return torch.stack([result.state["H"] for result in self.sent])

    @property
    def update(self) -> torch.Tensor:
        """Σ p_i (w_i⁺ − w^t)."""
        return self.p @ self.models - self.before.w


TOGA_VALUES = {"rho": 0.1, "lam": 0.3, "kappa": 1.0, "beta": 0.9}
WEIGHED = [
    ("fedcm", {"alpha": 0.4}, "D", lambda r: -r.update / (3 * 0.1)),
    ("mofedsam", {"alpha": 0.4, "rho": 0.1}, "D", lambda r: -r.update / (3 * 0.1)),
    ("fedtoga", TOGA_VALUES, "A", lambda r: -r.update / 3),
    ("mimelite", {"alpha": 0.4}, "s_mime",
     lambda r: 0.4 * (r.p @ r.uploads("full_gradient")) + 0.6 * r.before.server["s_mime"]),
    ("fedspeed", {"rho": 0.1, "lam": 0.3, "server_dual": "active"}, "w", lambda r: r.p @ (r.models + r.duals)),
    ("feddc", {"lam": 0.3, "server_dual": "active"}, "w", lambda r: r.p @ (r.models + r.duals)),
    ("feddyn", {"lam": 0.3}, "w", lambda r: r.p @ r.models + r.after.server["H_bar"]),
    ("fedacg", {"beta": 0.5, "lam": 0.3}, "w", lambda r: r.p @ r.models),
    ("adabest", {"mu": 0.1, "beta": 0.5}, "w_bar", lambda r: r.p @ r.models),
]  # fmt: skip
PLAIN = [
    ("fedsmoo", {"rho": 0.1, "lam": 0.3}, "s", lambda r: 0.1 * unit(r.uploads("s_i").mean(0))),
    ("fedsmoo", {"rho": 0.1, "lam": 0.3, "regulariser": False}, "s", lambda r: 0.1 * unit(r.uploads("s_i").mean(0))),
    ("fedtoga", {**TOGA_VALUES, "dual_norm": "M"}, "H_bar",
     lambda r: r.before.server["H_bar"] + (r.models - r.before.w).mean(0)),
    ("scaffold", {}, "c", lambda r: r.before.server["c"] + r.uploads("control_change").sum(0) / 4),
]  # fmt: skip


@pytest.mark.parametrize("aggregation", ["uniform", "samples"])
@pytest.mark.parametrize(("method", "values", "name", "expected"), WEIGHED + PLAIN, ids=names)
def test_server_vectors_under_both_weightings(method, values, name, expected, aggregation):
    """The second round, when every vector of the first is in use: clients 0 and 1, then 0 and 3 (5 and 11 samples)."""
    federation = Problem(7).federation(method, values, aggregation=aggregation)
    state = federation.start(federation.objective.initial())
    state, _ = federation.run_round(state, [0, 1])
    sent = federation.train_clients(state, [0, 3])
    after, _ = federation.run_round(state, [0, 3])
    p = vector(5 / 16, 11 / 16) if aggregation == "samples" else vector(0.5, 0.5)
    got = after.w if name == "w" else after.server[name]
    assert torch.allclose(got, expected(Round(state, after, [sent[0], sent[3]], p)), atol=1e-10)


def test_weights_of_another_shape_are_one_line():
    """One column of weights, which torch could broadcast."""

    class Column(Average):
        name = "column"

        def client_weights(self, server):
            return server.weights[:, None]

    recipe = Recipe("own", "Own", "a test", Components(server=Column))
    message = r"client_weights of column has the shape \[2, 1\] \(allowed: \[2\], one weight for each active client\)"
    with pytest.raises(UserError, match=message):
        Problem(0).run(recipe)
