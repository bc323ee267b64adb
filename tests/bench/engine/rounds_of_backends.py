"""Rounds by a back end, and the comparison of the states that they reach."""

from collections.abc import Iterable, Mapping, Sequence

import pytest
import torch
from torch import Tensor

from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.local import Backend
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.training.run_setup import RunSetup
from tests.problems import joint_round

CPU = torch.device("cpu")
TOLERANCE = 1e-8
"""On numbers of size 1 in float64, after ten rounds."""
SINGLE = 1e-4
"""Relative to the length of the update, in float32, after three rounds of a network."""


def close(a: FederationState, b: FederationState) -> None:
    """All vectors of two states are equal up to rounding."""
    pairs = [("w", a.w, b.w)] + [(name, v, b.server[name]) for name, v in a.server.items()]
    assert a.clients.keys() == b.clients.keys()
    pairs += [(name, v, b.clients[i][name]) for i, vectors in a.clients.items() for name, v in vectors.items()]
    for name, one, other in pairs:
        assert torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE), name


def bits(vectors: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype, tuple[int, ...], bytes]]:
    """Exactly what tensors hold, NaNs included."""
    return {
        name: (v.dtype, tuple(v.shape), v.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        for name, v in vectors.items()
    }


def same_bits(a: FederationState, b: FederationState) -> bool:
    """Whether two states are equal: round, model, server, and clients in the same order."""
    one, other = (
        (state.round, bits({"w": state.w}), bits(state.server), [(i, bits(own)) for i, own in state.clients.items()])
        for state in (a, b)
    )
    return one == other


def share_of_update(a: FederationState, b: FederationState, start: Tensor) -> float:
    """The distance of two models, relative to the way of the first one from the start."""
    return float((a.w - b.w).norm() / (a.w - start).norm())


def follow_the_loop(federation: Federation, participants: Iterable[Sequence[int]], backend: Backend) -> FederationState:
    """Rounds by the loop and by another back end, whose last state is returned.

    In each round all measurements and all vectors are equal up to rounding.
    """
    loop = other = federation.start(federation.objective.initial())
    for active in participants:
        loop, expected = federation.run_round(loop, active)
        other, measured = federation.run_round(other, active, backend=backend)
        assert measured == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
        close(loop, other)
    return other


VARIANTS = {
    "fedgf constant": ("fedgf", {"c": 0.5}),
    "fedlesam released": ("fedlesam", {"estimate": "released_literal"}),
    "fedlesam first round": ("fedlesam", {"first_seen": "none"}),
    "fedtoga fusion": ("fedtoga", {"direction": "fusion"}),
    "fedspeed active duals": ("fedspeed", {"server_dual": "active"}),
    "fedrobust full": ("fedrobust", {"affine": "full"}),
    "fedavg swa": ("fedavg", {"swa": {"start": 0, "cycle": 1}}),
    "fedavg swa as released": ("fedavg", {"swa": {"start": 0, "cycle": 1, "collect": "alg1"}}),
}
"""Methods with values that compute something else in a round, by name."""

NETWORKS = {
    "augmented": {"training.augmentation": ["standard", {"name": "cutout", "size": 3}]},
    "mixed-up": {"training.augmentation": ["flip", "mixup"]},
    "dropout": {"model": "cnn_emnist"},
    "bf16": {"training.precision": "bf16"},
}


def benches(method, **changes) -> list[RunSetup]:
    """Those of all three seeds of a cell on digits, with one epoch of two or three steps."""
    experiment = load_experiment("quick_catalog", {"training.local_epochs": 1, **changes})
    cell = experiment.cell(f"digits/dirichlet-0.1/4-of-20/{method}")
    return [RunSetup.build(config, CPU) for config in cell.runs]


def rounds(together, backend, count=3) -> list[FederationState]:
    states = [bench.federation.start(start) for bench, start in together]
    for _ in range(count):
        active = [bench.active(state) for (bench, _), state in zip(together, states, strict=True)]
        federations = [bench.federation for bench, _ in together]
        states = [state for state, _ in joint_round(federations, states, active, backend)]
    return states
