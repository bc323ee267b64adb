"""The hooks of components: when they run, what they get, and that the docs describe all of them."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import fedflat
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.methods.base import Component, Correction, Loss, Perturbation, Server
from fedflat.bench.methods.losses.cross_entropy import CrossEntropy
from fedflat.bench.methods.servers.look_ahead import LookAhead
from fedflat.bench.models.network import cross_entropy
from fedflat.methods import Components, Recipe
from fedflat.models import Dropout
from tests.places import ROOT

PAGE = (ROOT / "docs/experiments/methods.md").read_text(encoding="utf-8")


def simulated(components: Components, backend: str = "loop", **options: Any) -> fedflat.SimulationResult:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        clients = [(torch.randn(6, 3), torch.arange(6) % 2) for _ in range(2)]
    method = Recipe("own", "Own", "a test", components)
    return fedflat.simulate(
        method, model, clients, rounds=3, local_epochs=1, batch_size=3, lr=0.1, **options,
        engine=fedflat.EngineChoice(backend), keep_every_round=True,
    )  # fmt: skip


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def hooks(cls: type[Component]) -> dict[str, str]:
    """The hooks of a class by name, with their arguments."""
    inherited = set(vars(Component)) if cls is not Component else set()
    return {
        name: ", ".join(list(inspect.signature(value).parameters)[1:])
        for name, value in vars(cls).items()
        if inspect.isfunction(value) and not name.startswith(("_", "model_")) and name not in inherited
    }


@pytest.mark.parametrize("cls", [Component, Perturbation, Correction, Server, Loss])
def test_the_docs_have_every_hook_with_its_arguments(cls: type[Component]) -> None:
    _, _, rest = PAGE.partition("## All hooks")
    section, _, _ = rest.partition("\n## ")
    title = "All components" if cls is Component else cls.__name__
    _, _, table = section.partition(f"### {title}\n")
    rows = re.findall(r"^\| `(\w+)\(([^)]*)\)` \|", table.partition("\n### ")[0], re.M)
    assert dict(rows) == hooks(cls)


@pytest.mark.parametrize("backend", ["loop", "cohort"])
def test_after_the_step_the_server_sees_the_next_model(backend: str) -> None:
    """An average of the global models, which is sent in the next round."""
    sent = []

    class Averaged(Server):
        name = "averaged"
        server_state = ("mean",)

        def broadcast(self, w, state, t):
            sent.append((t, state["mean"].clone()))
            return {"mean": state["mean"]}

        def step(self, server):
            return server.mean_model

        def after_step(self, w, server):
            server.state["mean"] = 0.5 * server.state["mean"] + 0.5 * w

    result = simulated(Components(server=Averaged), backend)
    mean = torch.zeros(8)
    for t, (number, found) in enumerate(sent):
        assert number == t
        assert torch.allclose(found, mean)
        mean = 0.5 * mean + 0.5 * result.global_params[t]


def test_overrides_may_leave_the_round_out() -> None:
    class Halved(Server):
        name = "halved"

        def broadcast(self, w, state):
            return {"one": w.new_ones(())}

        def broadcast_model(self, w, state):
            return 0.5 * w

        def step(self, server):
            return server.mean_model

    class WithRound(Halved):
        name = "with_round"

        def broadcast_model(self, w, state, t):
            return super().broadcast_model(w, state)

    one, other = (flat(simulated(Components(server=cls)).model) for cls in (Halved, WithRound))
    assert torch.equal(one, other)


class Elsewhere(Loss):
    """Half of the loss at w, and half at `share` times w."""

    name = "elsewhere"
    share: float = 1.0

    def value(self, model, x, y, weights, variables):
        w = torch.cat([p.flatten() for p in (model.parameters or dict(model.module.named_parameters())).values()])
        return 0.5 * cross_entropy(model(x), y, weights) + 0.5 * cross_entropy(model.at(self.share * w)(x), y, weights)


@pytest.mark.parametrize("backend", ["loop", "cohort"])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_a_loss_can_evaluate_the_model_at_another_point(share: float, backend: str) -> None:
    """One step of a linear model, whose gradient at a share of w is computed here."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2, bias=False)
    x, y = torch.eye(3), torch.tensor([0, 1, 0])
    method = Recipe("own", "Own", "a test", Components(loss=Elsewhere))
    result = fedflat.simulate(
        method, model, [(x, y)], rounds=1, local_steps=1, batch_size=3, lr=0.1, hyperparameters={"share": share},
        engine=fedflat.EngineChoice(backend),
    )  # fmt: skip
    w = model.weight.detach().clone().requires_grad_()
    loss = 0.5 * cross_entropy(x @ w.T, y) + 0.5 * cross_entropy(x @ (share * w).T, y)
    [gradient] = torch.autograd.grad(loss, [w])
    torch.testing.assert_close(result.model.weight, w - 0.1 * gradient, rtol=1e-5, atol=1e-7)


class WithDropout(torch.nn.Module):
    def __init__(self, *, norm: bool) -> None:
        super().__init__()
        self.first, self.drop, self.head = torch.nn.Linear(3, 8), Dropout(0.5), torch.nn.Linear(8, 2)
        self.norm = torch.nn.BatchNorm1d(8) if norm else torch.nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(torch.relu(self.norm(self.first(x)))))


@pytest.mark.parametrize(("backend", "norm"), [("loop", False), ("cohort", False), ("loop", True)])
def test_all_passes_of_a_loss_have_the_same_dropout_and_one_changes_buffers(backend: str, norm: bool) -> None:
    """At the model's own point, both halves are the same: the loss is cross-entropy."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = WithDropout(norm=norm)
        clients = [(torch.randn(6, 3), torch.arange(6) % 2) for _ in range(2)]
    found = [
        fedflat.simulate(
            Recipe("own", "Own", "a test", Components(loss=loss)), model, clients, rounds=2, local_epochs=1,
            batch_size=3, lr=0.1, buffers="average" if norm else "refuse", engine=fedflat.EngineChoice(backend),
        )
        for loss in (Elsewhere, CrossEntropy)
    ]  # fmt: skip
    torch.testing.assert_close(flat(found[0].model), flat(found[1].model), rtol=1e-5, atol=1e-6)
    if norm:
        assert torch.equal(*(result.model.norm.num_batches_tracked for result in found))


def test_files_of_before_may_call_the_base_class_without_the_round() -> None:
    class Further(LookAhead):
        name = "further"

        def broadcast_model(self, w, state):
            return super().broadcast_model(w, state)

    one, other = (
        simulated(Components(server=server), hyperparameters={"beta": 0.5}) for server in (Further, LookAhead)
    )
    assert torch.equal(flat(one.model), flat(other.model))


STATES = """
from fedflat.methods import Components, Recipe

METHOD = Recipe("stated", "Stated", "a test", Components(), training={"server_lr": 0.5, "weight_decay": 0.01})
"""


def test_a_recipe_states_values_of_training(tmp_path: Path) -> None:
    file = tmp_path / "stated.py"
    file.write_text(STATES, encoding="utf-8")
    trust(file.read_bytes())
    experiment = {
        "name": "own",
        "extends": "quick",
        "training": {"server_lr": 0.9},
        "methods": {
            "fedavg": {},
            "stated": {"file": str(file)},
            "over": {"file": str(file), "training": {"server_lr": 0.7}},
        },
    }
    (tmp_path / "own.yaml").write_text(json.dumps(experiment), encoding="utf-8")
    loaded = load_experiment(str(tmp_path / "own.yaml"))
    cells = {cell.address.method: cell.runs[0].training for cell in loaded.cells().values()}
    found = {label: (training.server_lr, training.weight_decay) for label, training in cells.items()}
    assert found["stated"] == (0.5, 0.01)
    assert found["over"] == (0.7, 0.01)
    assert found["fedavg"][0] == 0.9
    by_command = load_experiment(str(tmp_path / "own.yaml"), {"training.server_lr": 0.3})
    assert {cell.runs[0].training.server_lr for cell in by_command.cells().values()} == {0.3}


def test_simulate_follows_the_recipe_unless_a_value_is_given() -> None:
    stated = Recipe("stated", "Stated", "a test", Components(), training={"server_lr": 0.5})
    clients = [(torch.eye(3), torch.tensor([0, 1, 0]))]
    with torch.random.fork_rng():
        model = torch.nn.Linear(3, 2, bias=False)

    def moved(method: str | Recipe, **given: float) -> torch.Tensor:
        result = fedflat.simulate(method, model, clients, rounds=1, local_steps=1, batch_size=3, lr=0.1, **given)
        return result.global_params[-1] - flat(model)

    torch.testing.assert_close(moved(stated), 0.5 * moved("fedavg"))
    torch.testing.assert_close(moved(stated, server_lr=1.0), moved("fedavg"))
