"""Momentum of local steps, against `torch.optim.SGD` created anew for each client and round.

`python -m tests.bench.engine.test_local_momentum` writes the golden files local_momentum_*.json.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters

from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.batches import EpochBatches
from fedflat.bench.engine.method_costs import example
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.catalog import CATALOG
from tests.bench.engine.rounds_of_backends import follow_the_loop
from tests.places import GOLDEN
from tests.problems import Problem, distance
from tests.tiers import METHODS

few = settings(max_examples=15, deadline=None)
RADII: Mapping[str, dict[str, Any]] = {
    "fedavg": {},
    "fedsam": {"rho": 0.1},
    "fedasam": {"rho": 0.5, "eta_a": 0.2, "biases": "plain"},
}


def sam(parameters: Sequence[Tensor], values: Mapping[str, Any]) -> list[Tensor]:
    """ρ g/‖g‖, from the gradient in the parameters."""
    length = parameters_to_vector([p.grad for p in parameters]).norm()
    return [values["rho"] * p.grad / (length + 1e-12) for p in parameters]


def asam(parameters: Sequence[Tensor], values: Mapping[str, Any]) -> list[Tensor]:
    """ρ T²g/‖Tg‖, where T = |w| + η for weights and 1 for biases."""
    scales = [p.detach().abs() + values["eta_a"] if p.dim() > 1 else torch.ones_like(p) for p in parameters]
    length = parameters_to_vector([T * p.grad for T, p in zip(scales, parameters, strict=True)]).norm()
    return [values["rho"] * T**2 * p.grad / (length + 1e-12) for T, p in zip(scales, parameters, strict=True)]


ASCENTS: Mapping[str, Callable[..., list[Tensor]] | None] = {"fedavg": None, "fedsam": sam, "fedasam": asam}


def torch_sgd(
    method: str,
    values: Mapping[str, Any],
    model: nn.Module,
    clients: Sequence[tuple[Tensor, Tensor]],
    participants: Sequence[Sequence[int]],
    local_steps: int,
    lr: float,
    momentum: float,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> list[Tensor]:
    """The global parameters `[P]` after each round; all active clients have the same weight."""
    parameters, ascent, found = list(model.parameters()), ASCENTS[method], []
    w = parameters_to_vector(parameters).detach()
    for active in participants:
        models = []
        for x, y in (clients[i] for i in active):
            vector_to_parameters(w.clone(), parameters)
            optimizer = torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay)
            for _ in range(local_steps):
                optimizer.zero_grad()
                cross_entropy(model(x), y).backward()
                if ascent is not None:
                    before = [p.detach().clone() for p in parameters]
                    offsets = ascent(parameters, values)
                    for p, offset in zip(parameters, offsets, strict=True):
                        p.data += offset
                    optimizer.zero_grad()
                    cross_entropy(model(x), y).backward()
                    for p, value in zip(parameters, before, strict=True):
                        p.data = value
                if clip is not None:
                    clip_grad_norm_(parameters, clip)
                optimizer.step()
            models.append(parameters_to_vector(parameters).detach().clone())
        w = torch.stack(models).mean(0)
        found.append(w)
    return found


@few
@given(
    method=st.sampled_from(sorted(RADII)),
    momentum=st.floats(0.05, 0.99),
    lr=st.floats(0.01, 0.5),
    weight_decay=st.sampled_from([0.0, 0.01, 0.1]),
    clip=st.sampled_from([None, 0.3]),
    seed=st.integers(0, 100),
)
def test_steps_are_those_of_torch_sgd(method, momentum, lr, weight_decay, clip, seed):
    """Two-layer network, unequal clients, partial participation. Clipping: both divide by ‖g‖ + 1e-6."""
    problem = Problem(seed, rounds=2)
    same = {"local_steps": 4, "lr": lr, "weight_decay": weight_decay, "clip": clip}
    ours = problem.run(method, RADII[method], local_momentum=momentum, **same).global_params
    theirs = torch_sgd(
        method, RADII[method], problem.model(), problem.data(), problem.some(), momentum=momentum, **same
    )
    assert max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) < 1e-12


def test_a_step_by_hand():
    """|q| = 5 is clipped to 1; d = clip(q) + ω w = (1.6, 0.8); b = 0.5 (2, 4) + d = (2.6, 2.8); w − 0.1 b."""
    steps = StepSettings(lr=0.1, weight_decay=0.1, clip=1.0, local_momentum=0.5)
    w, q, b = torch.tensor([10.0, 0.0]), torch.tensor([3.0, 4.0]), torch.tensor([2.0, 4.0])
    stepped, buffer = steps.momentum_step(w, q, b, 0.1)
    assert torch.allclose(buffer, torch.tensor([2.6, 2.8]), atol=1e-5)
    assert torch.allclose(stepped, torch.tensor([9.74, -0.28]), atol=1e-5)


def test_with_prox_split_the_proximal_term_is_not_clipped():
    """q = 3 + λ·10 with λ = 0.2 is clipped as 3, to 1; then ω + λ multiply w: d = 1 + (0.1 + 0.2)·10."""
    steps = StepSettings(lr=1.0, weight_decay=0.1, clip=1.0, local_momentum=0.5, prox_split=True)
    _, buffer = steps.momentum_step(torch.tensor([10.0]), torch.tensor([5.0]), None, 1.0, proximal=0.2)
    assert buffer.item() == pytest.approx(4.0, abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_no_momentum_and_a_single_step_are_plain_steps(method):
    problem, options = Problem(2), {"weight_decay": 0.01, "clip": 2.0}
    values = example(CATALOG[method])
    plain = problem.run(method, values, **options)
    assert distance(problem.run(method, values, local_momentum=0, **options), plain) == 0
    assert distance(problem.run(method, values, local_momentum=0.9, **options), plain) > 1e-3
    single = [problem.run(method, values, local_steps=1, local_momentum=mu, **options) for mu in (None, 0.9)]
    assert distance(*single) < 1e-12


def test_the_buffer_does_not_outlast_a_round():
    """Two rounds are one round, and another one that starts from its model."""
    problem = Problem(3, rounds=2)
    both = problem.run("fedsam", {"rho": 0.1}, local_momentum=0.9).global_params
    model, some = problem.model(), problem.some()
    for active, expected in zip(some, both, strict=True):
        [w] = problem.run("fedsam", {"rho": 0.1}, model=model, participants=[active], local_momentum=0.9).global_params
        assert torch.equal(w, expected)
        vector_to_parameters(w.clone(), model.parameters())


def follow(backend: Any, method: str, device: torch.device) -> None:
    """Rounds of clients with unequal numbers of steps; the buffer is no state of clients."""
    problem, values = Problem(1, rounds=6), example(CATALOG[method])
    federation = problem.federation(method, values, device=device, clip=2.0, weight_decay=0.01, local_momentum=0.9)
    federation.batch_sampler = EpochBatches(federation.batch_sampler.split, 2, 4, seed=3)
    last = follow_the_loop(federation, problem.some(), backend)
    assert not any("local_momentum" in vectors for vectors in last.clients.values())


@pytest.mark.parametrize("method", METHODS)
def test_a_cohort_follows_the_loop(method):
    follow(Cohort(), method, torch.device("cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize("backend", [Cohort, Graph])
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedtoga"])
def test_cohorts_and_graphs_follow_the_loop_on_a_gpu(backend, method):
    follow(backend(), method, prepare_device("cuda", 1))


def test_zero_is_the_same_run_as_null():
    cell = "digits/dirichlet-0.1/4-of-20/fedavg"
    identities = [
        load_experiment("quick", {"training.local_momentum": given}).cell(cell).runs[0].identity
        for given in (None, 0, 0.0, 0.9)
    ]
    plain = load_experiment("quick").cell(cell).runs[0].identity
    assert identities[:3] == [plain] * 3
    assert identities[3] != plain


@pytest.mark.parametrize("given", [1, -0.1, True])
def test_wrong_values_are_refused(given):
    with pytest.raises(UserError, match="local_momentum"):
        Problem(0).run("fedavg", {}, local_momentum=given)


def write_golden_files() -> None:
    """FedAvg, FedSAM and FedASAM: network and clients of fedrcl.json, participants of fedgf_partial.json."""
    partial = json.loads((GOLDEN / "fedgf_partial.json").read_text(encoding="utf-8"))
    for method, values in RADII.items():
        case = json.loads((GOLDEN / "fedrcl.json").read_text(encoding="utf-8"))
        case |= {"method": method, "hyperparameters": values, "weight_decay": 0.01}
        case |= {"participants": partial["participants"], "protocol": case["protocol"] | {"local_momentum": 0.9}}
        layers: list[nn.Module] = []
        for outputs, inputs in case["layers"]:
            layers += [*([nn.Tanh()] if layers else []), nn.Linear(inputs, outputs)]
        model = nn.Sequential(*layers).double()
        vector_to_parameters(torch.tensor(case["initial_params"], dtype=torch.float64), model.parameters())
        clients = [(torch.tensor(c["x"], dtype=torch.float64), torch.tensor(c["y"])) for c in case["clients"]]
        found = torch_sgd(
            method, values, model, clients, case["participants"], case["local_steps"], case["lr"], 0.9, 0.01
        )
        case["expected"] = {"global_params_after_round": [w.tolist() for w in found]}
        text = json.dumps(case, separators=(",", ": ")) + "\n"
        (GOLDEN / f"local_momentum_{method}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_golden_files()
