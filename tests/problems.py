"""Small federated problems that tests share."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedflat.bench.data.dataset import DeviceData
from fedflat.bench.engine.batches import FullBatches
from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.local import Backend
from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.methods.catalog import recipe
from fedflat.bench.methods.recipe import Recipe
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import RunSetup
from fedflat.bench.training.train import train_runs
from fedflat.simulation import simulate
from fedflat.simulation_result import SimulationResult


@dataclass(frozen=True)
class Problem:
    """A two-layer network in float64 on four clients of unequal size."""

    seed: int
    clients: int = 4
    rounds: int = 4

    def stream(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def data(self) -> list[tuple[Tensor, Tensor]]:
        stream = self.stream()
        sizes = [5 + 2 * i for i in range(self.clients)]
        return [
            (
                torch.randn(n, 4, generator=stream, dtype=torch.float64) + i,
                torch.randint(0, 3, (n,), generator=stream),
            )
            for i, n in enumerate(sizes)
        ]

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()

    def everybody(self) -> list[list[int]]:
        return [list(range(self.clients))] * self.rounds

    def some(self) -> list[list[int]]:
        """Partial participation in which every client takes part at least twice."""
        stream = self.stream()
        return [sorted(torch.randperm(self.clients, generator=stream)[:2].tolist()) for _ in range(self.rounds)]

    def run(self, method: str | Recipe, hyperparameters: dict | None = None, **options) -> SimulationResult:
        defaults = {
            "model": self.model(),
            "clients": self.data(),
            "participants": self.some(),
            "local_steps": 3,
            "lr": 0.1,
            "aggregation": "uniform",
            "keep_every_round": True,
        }
        return simulate(method, hyperparameters=hyperparameters, **{**defaults, **options})

    def federation(
        self,
        method: str | Recipe,
        hyperparameters: dict,
        model: nn.Module | None = None,
        device: torch.device = torch.device("cpu"),  # noqa: B008 - a value
        **steps,
    ) -> Federation:
        """The federation behind `run`, for tests that look at its state."""
        data, model = self.data(), (model or self.model()).to(device)
        sizes = [len(y) for _, y in data]
        edges = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        split = [np.arange(a, b) for a, b in pairwise(edges)]
        x, y = (torch.cat(parts).to(device) for parts in zip(*data, strict=True))
        device_data = DeviceData(x, y, torch.zeros((), device=device), torch.ones((), device=device))
        built = (recipe(method) if isinstance(method, str) else method).build(hyperparameters)
        settings = StepSettings(**{"lr": 0.1, "aggregation": "uniform", **steps})
        return Federation(
            built, Objective(model), device_data, FullBatches(split, 3), sizes, settings, self.seed, rounds=self.rounds
        )


def train(config: RunConfig, folder: Path, device: torch.device, **options: Any) -> RunDirectory:
    """Train one run into its folder."""
    return train_runs([config], [folder], device, **options)[0]


def stored(results: Path, seed: int = 0, method: str = "*") -> Path:
    """The only run with a seed, and of a method, in the store of a folder of results."""
    [place] = (results / "store").glob(f"*/*/*/{method}-????????/seed-{seed}")
    return place


def one_round(setup: RunSetup, state: FederationState) -> tuple[FederationState, dict]:
    """One round of a run, computed by the plain loop."""
    return setup.federation.run_round(state, setup.active(state))


def joint_round(
    federations: Sequence[Federation],
    states: Sequence[FederationState],
    active: Sequence[Sequence[int]],
    backend: Backend,
) -> list[tuple[FederationState, dict[str, float]]]:
    """A round of several federations, whose clients are trained in one call of the back end, as by `CellTrainer`."""
    works = [f.work(state, clients) for f, state, clients in zip(federations, states, active, strict=True)]
    results = iter(backend.train(federations[0].local, [client for work in works for client in work]))
    ends = [
        f.aggregate(state, work, [next(results) for _ in work])
        for f, state, work in zip(federations, states, works, strict=True)
    ]
    return [(state, measurements.numbers()) for state, measurements in ends]


def distance(a: SimulationResult, b: SimulationResult) -> float:
    """The largest difference of any coordinate in any round."""
    assert len(a.global_params) == len(b.global_params)
    return max(float((x - y).abs().max()) for x, y in zip(a.global_params, b.global_params, strict=True))


class Recorder(nn.Module):
    """A linear model of any numbers, which records its inputs."""

    seen: list[Tensor] = []  # noqa: RUF012 - of all copies

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach().clone())
        scores: Tensor = self.layer(x.float())
        return scores
