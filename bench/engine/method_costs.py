"""The costs of a method in traffic, state and gradients, counted in a small run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from pydantic.fields import FieldInfo
from torch import nn

from fedflat.bench.engine.batches import LocalSteps
from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.own_tensors import OwnData, federation_on
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.methods.losses.cross_entropy import CrossEntropy
from fedflat.bench.methods.recipe import Recipe


def example(entry: Recipe) -> dict[str, Any]:
    """Hyper-parameters for a trial of the method: an example value for each that has no default."""
    return example_values(entry.hyperparameters)


def example_values(fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """An example value for each of the hyper-parameters that has no default."""
    required = {name: field for name, field in fields.items() if field.is_required()}
    return {name: field.examples[0] if field.examples else 0.1 for name, field in required.items()}


def measured_costs(entry: Recipe, hyperparameters: Mapping[str, Any]) -> dict[str, float]:
    """The measurements of the second round of a small run in which both of two clients take part."""
    stream = torch.Generator().manual_seed(0)
    clients = [(torch.randn(4, 6, generator=stream), torch.tensor([0, 1, 2, 0])) for _ in range(2)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, 3))
    method = entry.build(hyperparameters)
    if method.loss.label_maps:  # the small run has labels of inputs, and such a loss takes as many gradients
        method = replace(method, loss=CrossEntropy())
    steps = LocalSteps(steps=4, batch_size=1)
    objective = Objective(model)
    data = OwnData.of_clients(objective, clients)
    federation = federation_on(method, objective, data, StepSettings(lr=0.1), steps, seed=0, rounds=2)
    first, _ = federation.run_round(federation.start(federation.objective.initial()), [0, 1])
    return federation.run_round(first, [0, 1])[1]
