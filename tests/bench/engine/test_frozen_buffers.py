"""Frozen parts with BatchNorm: their statistics stay as they are, and are neither sent nor stored."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import nn

import fedflat
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.engine.backends import BACKENDS
from fedflat.bench.engine.objective import Objective, dropout_shapes
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.methods.common.buffers import BUFFERS
from fedflat.bench.models import build_model, parse_model
from fedflat.bench.models.dropout import Dropout
from fedflat.bench.models.frozen_parts import freeze, frozen_parts
from fedflat.bench.models.network import cross_entropy, has_buffers
from fedflat.bench.training.run_directory import RunDirectory
from tests.bench.engine.test_buffers import CPU, STEPS, by_torch, check_that_it_is_resumed, clients, federation, started
from tests.problems import train


def network(*frozen: str) -> nn.Sequential:
    """Two parts with BatchNorm, and a last layer. The statistics are not those of a new layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), Dropout(0.5), nn.ReLU()),
            nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)),
            nn.Linear(5, 3),
        ).double()
        for part in model[:2]:
            part[1].running_mean.normal_()
            part[1].running_var.uniform_(0.5, 2)
            part[1].num_batches_tracked.fill_(7)
    freeze(model, frozen)
    return model


@pytest.mark.parametrize("mode", ["average", "local"])
def test_statistics_of_a_frozen_part_stay_and_are_not_sent(mode):
    fed = federation(mode=mode, model=network("0"))
    state, row = fed.run_round(started(fed), [1])
    expected = by_torch(1, network("0"), frozen=["0"])
    assert torch.allclose(state.w, torch.cat([p.reshape(-1) for p in expected.parameters() if p.requires_grad]))
    assert state.server[BUFFERS].numel() == 11, "of the trained part: mean, variance, and a count"
    assert torch.allclose(state.server[BUFFERS][:5], expected[1][1].running_mean)
    sent = 11 / fed.objective.layout.total if mode == "average" else 0
    assert row["upload"] == row["download"] == pytest.approx(1 + sent)
    fed.evaluate_with(state)
    evaluated = fed.objective.load(state.w).eval()
    before = network().state_dict()
    assert all(torch.equal(v, before[name]) for name, v in evaluated.state_dict().items() if name.startswith("0."))
    assert evaluated[1][1].num_batches_tracked == 7 + STEPS


def test_without_other_buffers_a_model_is_one_without_buffers():
    """No `buffers` are needed, all back ends are possible, and dropout of a frozen part drops nothing."""
    model = network("0", "1")
    assert len(frozen_parts(model)) == 2
    assert not has_buffers(model)
    fed = federation(mode=None, model=model)
    works = fed.work(started(fed), [0, 1, 2])
    by_loop, by_cohort = (BACKENDS[name]().train(fed.local, works) for name in ("loop", "cohort"))
    for one, other in zip(by_loop, by_cohort, strict=True):
        assert torch.allclose(one.w, other.w, atol=1e-12)
        assert BUFFERS not in one.upload
    assert federation(mode="average", model=network("0", "1")).objective.buffers is None
    for option in ({}, {"buffers": "average"}):
        result = fedflat.simulate("fedavg", model, clients(), rounds=1, local_steps=2, lr=0.1, **option)
        assert result.history["upload"].iloc[-1] == 1
        theirs = result.model.state_dict()
        assert all(torch.equal(v, theirs[name]) for name, v in model.state_dict().items() if name[0] in "01")


def test_finding_the_shapes_of_dropout_changes_no_statistics():
    model = network("0", "1.1")
    model[2] = nn.Sequential(Dropout(0.1), model[2])
    objective, before = Objective(model, buffer_mode="average"), deepcopy(model.state_dict())
    assert dropout_shapes(objective, torch.zeros(1, 4, dtype=torch.float64)) == [(5,)]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_frozen_branches_of_bisenet():
    choice = parse_model({"name": "bisenet_v2", "frozen": ["detail", "segment"], "buffers": "local"})
    model = build_model(choice, (3, 64, 64), 5, 0)
    objective = Objective(model, buffer_mode=choice.buffer_mode)
    whole = sum(b.numel() for b in model.buffers())
    assert (
        0
        < objective.buffers.numel()
        == whole - sum(b.numel() for p in (model.detail, model.segment) for b in p.buffers())
    )
    before = deepcopy(model.state_dict())
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(2, 64, 64, dtype=torch.long)
    objective.gradients_from(objective.buffers)(objective.initial(), lambda model, _: cross_entropy(model(x), y), {})
    changed = {name.split(".")[0] for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"bga", "head", "aux2", "aux3", "aux4", "aux5_4"}


NET = """
from torch import nn

def build(shape, classes):
    features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    features.requires_grad_(False)
    return nn.Sequential(
        features, nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(16, classes),
    )
"""


def test_a_run_with_a_frozen_part_is_resumed_with_the_same_bits(tmp_path: Path, monkeypatch):
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    trust(NET.encode())
    wanted = RunConfig.parse(
        {
            "dataset": "digits",
            "model": {"file": str(tmp_path / "net.py"), "function": "build", "buffers": "average"},
            "partition": {"name": "dirichlet", "alpha": 0.6, "clients": 6},
            "participation": {"active": 3},
            "method": "fedavg",
            "training": {"rounds": 3, "local_epochs": 1, "batch_size": 20, "lr": 0.1},
            "engine": {"checkpoint_seconds": 0},
            "seed": 0,
        }
    )
    run = train(wanted, tmp_path / "whole", CPU)
    resumed = check_that_it_is_resumed(wanted, run.path, 2, tmp_path / "resumed", monkeypatch)
    assert resumed.server[BUFFERS].numel() == 9
    model = fedflat.load_model(run.path, trust=True)
    assert model[0][1].running_mean.tolist() == [0] * 4
    assert model[2].running_mean.abs().min() > 0
    x, y = fedflat.load_run(run.path, trust=True).data("test")
    recorded = RunDirectory(run.path).metrics()["test_accuracy"].iloc[-1]
    assert 100 * float((model(x).argmax(1) == y).double().mean()) == pytest.approx(recorded, abs=1e-3)
