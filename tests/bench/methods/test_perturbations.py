"""The perturbation that every local step takes: its length is rho, and its direction is the method's own."""

import pytest
import torch

from fedflat.bench.engine.participation import active_clients
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.methods.perturbations.asam import ASAM
from fedflat.bench.training.run_setup import RunSetup

SETTING = "digits/dirichlet-0.1/4-of-20"


def watched_rounds(method: str, rounds: int, **changes):
    """Run some rounds of the catalog's experiment; every (round, client, step, w, δ), and the bench."""
    experiment = load_experiment("quick_all", changes)
    bench = RunSetup.build(experiment.cell(f"{SETTING}/{method}").runs[0], torch.device("cpu"))
    state = bench.federation.start(bench.objective.initial())
    seen, models = [], []
    for t in range(rounds):
        active = active_clients(bench.config.participation, 20, bench.config.seed, t)
        models.append(state.w)
        state, _ = bench.federation.run_round(state, active, lambda i, k, w, d, t=t: seen.append((t, i, k, w, d)))
    return bench, models, seen


WITH_LENGTH_RHO = [
    "fedsam",
    "mofedsam",
    "fedgamma",
    "fedspeed",
    "fedlesam",
    "fedlesam_s",
    "fedlesam_d",
    "fedsmoo",
    "fedtoga",
]


@pytest.mark.parametrize("method", WITH_LENGTH_RHO)
def test_every_perturbation_has_length_rho(method):
    bench, _, seen = watched_rounds(method, 3)
    rho = bench.config.method.hyperparameters["rho"]
    assert len(seen) >= 3 * 4 * 6
    for _, _, _, _, delta in seen:
        assert float(delta.norm()) == pytest.approx(rho, rel=1e-4)


def test_fedgf_without_global_share_has_length_rho():
    bench, _, seen = watched_rounds("fedgf", 2, **{"methods.fedgf.hyperparameters.T_D": 1e9})
    rho = bench.config.method.hyperparameters["rho"]
    assert all(float(delta.norm()) == pytest.approx(rho, rel=1e-4) for *_, delta in seen)


def test_fedgf_with_full_global_share_takes_all_gradients_at_one_point():
    """c = 1 from round 1 on: z = v^t whatever the local iterate, at distance rho_g from w^t."""
    bench, models, seen = watched_rounds("fedgf", 2, **{"methods.fedgf.hyperparameters.T_D": -1})
    points = torch.stack([w + delta for t, _, _, w, delta in seen if t == 1])
    assert float((points - points[0]).abs().max()) < 1e-6
    rho_g = bench.config.method.hyperparameters["rho_g"]
    assert float((points[0] - models[1]).norm()) == pytest.approx(rho_g, rel=1e-4)


def test_fedasam_has_length_rho_in_scaled_coordinates():
    bench, _, seen = watched_rounds("fedasam", 2)
    component = bench.federation.method.perturbation
    assert isinstance(component, ASAM)
    names = bench.objective.layout.names
    for _, _, _, w, delta in seen[:20]:
        pieces = zip(bench.objective.layout.split(w).items(), bench.objective.layout.split(delta).values(), strict=True)
        scaled = [d / (v.abs() + component.eta_a) if "weight" in n else d for (n, v), d in pieces]
        assert float(torch.cat([s.reshape(-1) for s in scaled]).norm()) == pytest.approx(component.rho, rel=1e-4)
    assert {"norm1.weight", "norm1.bias"} <= set(names)


def test_fedavg_does_not_perturb():
    _, _, seen = watched_rounds("fedavg", 1)
    assert seen
    assert all(not delta.any() for *_, delta in seen)


def test_fedlesam_points_from_this_model_to_the_one_received_before():
    """First participation: −w^t/‖w^t‖; later: the model of the client's own last round, however long ago."""
    bench, models, seen = watched_rounds("fedlesam", 12)
    rho = bench.config.method.hyperparameters["rho"]
    last_seen: dict[int, int] = {}
    gaps = set()
    for t, client, k, _, delta in seen:
        if k == 0:
            old = models[last_seen[client]] if client in last_seen else torch.zeros_like(models[0])
            direction = old - models[t]
            assert torch.allclose(delta, rho * direction / direction.norm(), atol=1e-6)
            if client in last_seen:
                gaps.add(t - last_seen[client])
            last_seen[client] = t
    assert max(gaps) > 1, "no client came back after a pause: the test shows nothing"


def test_fedlesam_can_leave_the_first_round_unperturbed():
    _, _, seen = watched_rounds("fedlesam", 1, **{"methods.fedlesam.hyperparameters.first_seen": "none"})
    assert all(not delta.any() for *_, delta in seen)
