"""Models with buffers: what a step, a round, a run and an analysis make of BatchNorm's statistics."""

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fedflat
from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.measures.curvature.hessian import top_eigenvalues
from fedflat.analysis.provenance.verify import verify_run
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.data.dataset import DeviceData
from fedflat.bench.engine.backends import BACKENDS
from fedflat.bench.engine.batches import FullBatches
from fedflat.bench.engine.checkpoint import load_state
from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import CannotBatchError
from fedflat.bench.methods.catalog import recipe
from fedflat.bench.methods.common.buffers import BUFFERS
from fedflat.bench.models.buffer_mode import BufferMode, LocalBuffers
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_runs
from fedflat.bench.training.training_run import TrainingRun
from tests.problems import train

CPU = torch.device("cpu")
STEPS = 3
SIZES = [6, 10, 8]


def network() -> nn.Module:
    """With a statistic of each kind, and a constant that nothing may change."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double()
    model.register_buffer("constant", torch.tensor([1 / 3, 0.1], dtype=torch.float64))
    return model


def data() -> tuple[torch.Tensor, torch.Tensor]:
    stream = torch.Generator().manual_seed(1)
    x = torch.randn(sum(SIZES), 4, generator=stream, dtype=torch.float64)
    return x + torch.arange(sum(SIZES))[:, None] / 5, torch.arange(sum(SIZES)) % 3


def federation(
    method: str = "fedavg", mode: BufferMode = "average", model: nn.Module | None = None, **hyperparameters
) -> Federation:
    x, y = data()
    edges = np.cumsum([0, *SIZES])
    split = [np.arange(a, b) for a, b in pairwise(edges)]
    device_data = DeviceData(x, y, torch.zeros(()), torch.ones(()))
    settings = StepSettings(lr=0.1, aggregation="samples")
    objective = Objective(model or network(), buffer_mode=mode)
    method_ = recipe(method).build(hyperparameters)
    return Federation(method_, objective, device_data, FullBatches(split, STEPS), SIZES, settings, 0)


def by_torch(client: int, model: nn.Module | None = None, frozen: Sequence[str] = ()) -> nn.Module:
    """Local training of a model, some parts of which may be frozen, as a user would write it."""
    model = deepcopy(model or network()).train()
    for part in frozen:
        model.get_submodule(part).eval()
    x, y = (part.split(SIZES)[client] for part in data())
    sgd = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(STEPS):
        sgd.zero_grad()
        F.cross_entropy(model(x), y).backward()
        sgd.step()
    return model


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([b.double().reshape(-1) for b in model.buffers()])


def started(fed: Federation):
    return fed.start(fed.objective.initial())


def test_a_round_averages_what_torch_computes():
    fed = federation()
    state, row = fed.run_round(started(fed), [0, 1, 2])
    trained, weights = [by_torch(i) for i in range(3)], torch.tensor(SIZES) / sum(SIZES)
    expected = sum(p * flat(model) for p, model in zip(weights, trained, strict=True))
    assert torch.allclose(state.server[BUFFERS], expected, atol=1e-6)
    assert torch.equal(state.server[BUFFERS][:2], network().constant), "a constant keeps its bits"
    sent = 1 + 13 / fed.objective.layout.total  # 2 × 5 statistics, a count, a constant of two numbers
    assert row["download"] == row["upload"] == pytest.approx(sent)
    fed.evaluate_with(state)
    model = fed.objective.load(state.w).eval()
    assert model[1].num_batches_tracked == STEPS
    assert torch.allclose(model[1].running_mean, expected[2:7], atol=1e-6)


def test_each_client_keeps_its_own():
    """The second round starts from the client's statistics, which are not sent; the server's serve the evaluation."""
    fed = federation(mode="local")
    first, row = fed.run_round(started(fed), [0, 1])
    assert row["download"] == row["upload"] == 1
    assert torch.allclose(first.clients[1][BUFFERS], flat(by_torch(1)))
    second, _ = fed.run_round(first, [1])
    model = fed.objective.load(first.w)
    fed.objective._load_buffers(first.clients[1][BUFFERS])
    assert torch.allclose(second.clients[1][BUFFERS], flat(by_torch(1, model)))
    assert torch.equal(second.server[BUFFERS], second.clients[1][BUFFERS])
    assert torch.equal(second.clients[0][BUFFERS], first.clients[0][BUFFERS])


def test_some_are_kept_and_the_others_averaged():
    """Means stay with the client; variances and counts are sent. The server's b is the same mean as in other modes."""
    fed = federation(mode=LocalBuffers(local=("*.running_mean",)))
    first, row = fed.run_round(started(fed), [0, 1])
    averaged, _ = federation().run_round(started(federation()), [0, 1])
    assert torch.equal(first.server[BUFFERS], averaged.server[BUFFERS])
    trained = by_torch(1)
    assert torch.allclose(first.clients[1][BUFFERS], trained[1].running_mean)
    assert (
        row["download"] == row["upload"] == pytest.approx(1 + 8 / fed.objective.layout.total)
    )  # 5 variances, 3 numbers
    fed.evaluate_with(first)
    model = deepcopy(fed.objective.load(first.w))
    with torch.no_grad():
        model[1].running_mean.copy_(first.clients[1][BUFFERS])
    second, _ = fed.run_round(first, [1])
    assert torch.allclose(second.server[BUFFERS], flat(by_torch(1, model)), atol=1e-6)
    assert torch.equal(second.clients[1][BUFFERS], second.server[BUFFERS][2:7])


@pytest.mark.parametrize(("pattern", "mode"), [("*", "local"), ("1.*", "local")])
def test_patterns_of_all_statistics_are_the_same_as_local(pattern, mode):
    """A constant need not be sent: it is the same everywhere."""
    rounds = []
    for one in (LocalBuffers(local=(pattern,)), mode):
        fed = federation(mode=one)
        state = started(fed)
        for active in ([0, 1], [1, 2]):
            state, _ = fed.run_round(state, active)
        rounds.append(state)
    assert torch.equal(rounds[0].w, rounds[1].w)
    assert torch.equal(rounds[0].server[BUFFERS], rounds[1].server[BUFFERS])


def test_a_pattern_must_match_a_buffer():
    message = r"the pattern '\*\.bn\.\*' matches no buffer of the model \(its first one is 'constant'\)"
    with pytest.raises(UserError, match=message):
        federation(mode=LocalBuffers(local=("1.*", "*.bn.*")))


class Buffered(nn.Module):
    """A linear model with one buffer; `step` makes a batch's buffer from the one before it."""

    def __init__(self, buffer: torch.Tensor, step=None) -> None:
        super().__init__()
        with torch.random.fork_rng():
            self.scores = nn.Linear(4, 3).double()
        self.register_buffer("own", buffer)
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and self.step is not None:
            self.own.copy_(self.step(self.own))
        return self.scores(x)


def test_a_buffer_of_one_number_is_no_metric():
    fed = federation(model=Buffered(torch.zeros((), dtype=torch.float64), lambda own: own + 1))
    state, row = fed.run_round(started(fed), [0, 1])
    assert state.server[BUFFERS].tolist() == [STEPS]
    assert BUFFERS not in row


@pytest.mark.parametrize("mode", ["average", "local", LocalBuffers(local=("o*",))], ids=str)
def test_infinite_constants_stay_and_what_becomes_infinite_has_diverged(mode):
    """Attention masks have -inf, and a user may mark entries by NaN."""
    mask = torch.tensor([-torch.inf, 0.0, torch.nan], dtype=torch.float64)
    fed = federation(mode=mode, model=Buffered(mask.clone()))
    state = started(fed)
    for active in ([0, 1], [1, 2]):
        state, row = fed.run_round(state, active)
        assert row["diverged"] == 0
        assert torch.equal(state.server[BUFFERS].nan_to_num(7), mask.nan_to_num(7))
    for start, step in ((1e200, lambda own: own * 1e200), (-torch.inf, lambda own: -own)):
        fed = federation(mode=mode, model=Buffered(torch.tensor([start], dtype=torch.float64), step))
        state, row = fed.run_round(started(fed), [0, 1])
        assert state.w.isfinite().all()
        assert row["diverged"] == 1


def test_whole_numbers_that_would_lose_digits_are_refused():
    for number in (2**24 + 1, 2**62 + 1):
        message = "the model's buffer 'own' has numbers that float32, .* cannot store exactly .* up to 16,777,216"
        with pytest.raises(UserError, match=message):
            Objective(Buffered(torch.tensor([0, number])).float(), buffer_mode="local")
    buffers = Objective(Buffered(torch.tensor([True, False])).float(), buffer_mode="local").buffers
    assert buffers.tolist() == [1, 0]
    assert Objective(Buffered(torch.tensor(-(2**24))).float(), buffer_mode="local").buffers.tolist() == [-(2**24)]


def test_only_the_first_gradient_of_a_step_counts():
    """With a SAM radius near zero, a client has FedAvg's statistics; a pass over all data is not counted either."""
    plain, _ = federation().run_round(started(federation()), [0])
    for method, values in (("fedsam", {"rho": 1e-9}), ("mimelite", {"alpha": 0.5})):
        fed = federation(method, **values)
        state, row = fed.run_round(started(fed), [0])
        assert row["gradients"] > 1.2
        assert state.server[BUFFERS][-1] == STEPS
        assert method != "fedsam" or torch.allclose(state.server[BUFFERS], plain.server[BUFFERS], atol=1e-6)


def test_back_ends():
    fed = federation()
    state = started(fed)
    works = fed.work(state, [0, 1, 2])
    [loop, parallel] = [BACKENDS[name]().train(fed.local, works) for name in ("loop", "parallel")]
    assert all(one.has_bits_of(other) for one, other in zip(loop, parallel, strict=True))
    with pytest.raises(CannotBatchError, match="the model has buffers"):
        BACKENDS["cohort"]().train(fed.local, works)


def test_gradients_of_analyses_are_those_of_the_evaluated_model():
    fed = federation()
    state, _ = fed.run_round(started(fed), [0, 1, 2])
    fed.evaluate_with(state)
    model = deepcopy(fed.objective.load(state.w)).eval()
    fed.train_clients(state, [0])  # leaves other statistics in the module
    loss = F.cross_entropy(model(data()[0]), data()[1])
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])
    assert torch.allclose(fed.objective.full_gradient(state.w, [data()]), expected)
    assert fed.objective.loss(state.w, [data()]) == pytest.approx(float(loss.detach()))


@pytest.mark.parametrize("mode", ["average", "local", LocalBuffers(local=("*mean",))], ids=str)
def test_swa_averages_them_like_the_parameters(mode):
    """The rate is constant, so that training is that without SWA: means of the models after rounds 2 and 4."""
    plain, averaged = federation(mode=mode), federation(mode=mode, swa={"start": 0, "cycle": 2, "lr_end": 0.1})
    state, other = started(plain), started(averaged)
    collected = []
    for t in range(5):
        state, other = (fed.run_round(s, [0, 1, 2])[0] for fed, s in ((plain, state), (averaged, other)))
        collected += [state] if t in (1, 3) else []
        averaged.evaluate_with(other)
        final = averaged.final(other)
        for found in (averaged.objective.buffers, final.server[BUFFERS]):
            models = collected or [state]
            assert torch.allclose(found, torch.stack([one.server[BUFFERS] for one in models]).mean(0), atol=1e-12)
            assert torch.equal(found[:2], network().constant)
        assert torch.equal(other.server[BUFFERS], state.server[BUFFERS])
    averaged.evaluate_with(final)
    assert torch.equal(averaged.objective.buffers, final.server[BUFFERS])


def test_what_is_refused():
    with pytest.raises(UserError, match=r"the model has buffers .*allowed: average, local, or \{local: \[PATTERN"):
        Objective(network())
    with pytest.raises(UserError, match="buffers: local, but the model has no buffers"):
        Objective(nn.LayerNorm(2), buffer_mode="local")
    with pytest.raises(UserError, match=r"buffers: \{local: \[\*\.bn\.\*\]\}, but the model has no buffers"):
        Objective(nn.LayerNorm(2), buffer_mode=LocalBuffers(local=("*.bn.*",)))


NET = """
from torch import nn

def build(shape, classes):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, classes)
    )
"""


def config(folder: Path, **model) -> RunConfig:
    (folder / "net.py").write_text(NET, encoding="utf-8")
    trust(NET.encode())
    return RunConfig.parse(
        {
            "dataset": "digits",
            "model": {"file": str(folder / "net.py"), "function": "build", **model},
            "partition": {"name": "dirichlet", "alpha": 0.6, "clients": 6},
            "participation": {"active": 3},
            "method": "fedavg",
            "training": {"rounds": 4, "local_epochs": 4, "batch_size": 20, "lr": 0.5},
            "evaluation": {"snapshot_every": 2},
            "engine": {"checkpoint_seconds": 0},
            "seed": 0,
        }
    )


def check_that_it_is_resumed(
    wanted: RunConfig, whole: Path, after: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> FederationState:
    """A run that is killed after a round, and resumed in `folder`, has the bits of the `whole` run; its last state."""

    class Killed(BaseException):
        pass

    write = TrainingRun.write_checkpoint

    def killed(self: TrainingRun) -> None:
        write(self)
        if self.state.round == after:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(TrainingRun, "write_checkpoint", killed)
        train_runs([wanted], [folder], CPU)
    train_runs([wanted], [folder], CPU)
    expected, resumed = (load_state(path / "final.safetensors", CPU)[0] for path in (whole, folder))
    assert torch.equal(expected.w, resumed.w)
    assert torch.equal(expected.server[BUFFERS], resumed.server[BUFFERS])
    return resumed


@pytest.mark.parametrize("mode", ["average", "local", {"local": ["1.running_mean"]}], ids=str)
def test_a_run_is_resumed_verified_and_analysed(mode, tmp_path, monkeypatch):
    wanted = config(tmp_path, buffers=mode)
    run = train(wanted, tmp_path / "whole", CPU)
    recorded = RunDirectory(run.path).metrics()
    assert recorded["test_accuracy"].iloc[-1] > 30

    check_that_it_is_resumed(wanted, run.path, 3, tmp_path / "resumed", monkeypatch)

    verdict = verify_run(run.path, 2, lambda _: CPU, trust=True)
    assert not verdict.differs
    assert any("same bits" in line for line in verdict.verified)

    x, y = fedflat.load_run(run.path).data("test")
    model = fedflat.load_model(run.path)
    accuracy = 100 * float((model(x).argmax(1) == y).double().mean())
    assert accuracy == pytest.approx(recorded["test_accuracy"].iloc[-1], abs=1e-3)

    analysed = AnalysedRun(RunDirectory(run.path), CPU)
    sample = analysed.sample("train", 50).data
    before = top_eigenvalues(analysed.setup.objective, analysed.w, sample, 1).eigenvalues
    analysed.retrained(analysed.state(2), 0)
    assert top_eigenvalues(analysed.setup.objective, analysed.w, sample, 1).eigenvalues == before
    [own] = sample
    assert fedflat.hessian(model.train(), own).eigenvalues == pytest.approx(before, rel=1e-4)


def clients() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(*(part.split(SIZES) for part in data()), strict=True))


OPTIONS = {"participants": [[0, 1], [1, 2], [0, 2]], "local_steps": STEPS, "lr": 0.1, "aggregation": "samples"}


@pytest.mark.parametrize("mode", ["average", "local"])
def test_simulate_has_the_bits_of_a_federation(mode):
    fed = federation("fedsam", mode, rho=0.1)
    state = started(fed)
    for active in OPTIONS["participants"]:
        state, row = fed.run_round(state, active)
    model, test = network(), data()
    result = fedflat.simulate(
        "fedsam", model, clients(), **OPTIONS, hyperparameters={"rho": 0.1}, buffers=mode, test=test
    )
    assert torch.equal(result.global_params[-1], state.w)
    assert torch.equal(flat(result.model)[:-1], state.server[BUFFERS][:-1])
    assert result.model[1].num_batches_tracked == state.server[BUFFERS][-1].round()
    assert result.history["upload"].iloc[-1] == row["upload"]
    loss = F.cross_entropy(result.model(test[0]), test[1])
    assert result.history["test_loss"].iloc[-1] == pytest.approx(float(loss.detach()))
    assert model.training
    assert torch.equal(flat(model), flat(network())), "the model is not changed"


@pytest.mark.parametrize("training", [True, False])
def test_curvature_of_an_own_model_is_that_of_the_evaluated_one(training):
    x, y = data()
    model = by_torch(1).train(training)
    before = flat(model)
    evaluated = deepcopy(model).eval()
    exact = torch.autograd.functional.hessian(
        lambda w: F.cross_entropy(torch.func.functional_call(evaluated, unflattened(evaluated, w), x), y),
        nn.utils.parameters_to_vector(evaluated.parameters()).detach(),
    )
    top = fedflat.hessian(model, (x, y), tolerance=1e-6).eigenvalues[0]
    assert top == pytest.approx(float(torch.linalg.eigvalsh(exact)[-1]), rel=1e-4)
    plane = fedflat.surface(model, (x, y), points=3)
    assert plane["loss"][4] == pytest.approx(float(F.cross_entropy(evaluated(x), y).detach()))
    assert fedflat.sharpness(model, (x[:1], y[:1]), rho=0.1) > 0, "one sample is enough"
    assert pd.notna(plane).all(axis=None)
    assert model.training == training
    assert torch.equal(flat(model), before)


def unflattened(model: nn.Module, w: torch.Tensor) -> dict[str, torch.Tensor]:
    parts = w.split([p.numel() for p in model.parameters()])
    return {name: part.view(p.shape) for (name, p), part in zip(model.named_parameters(), parts, strict=True)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r'the model has buffers, .*buffers="average".*buffers="local"'),
        ({"buffers": "mean"}, r"buffers = 'mean' \(allowed: refuse, average, local\)"),
        ({"buffers": "local", "model": nn.Linear(4, 3).double()}, "buffers: local, but the model has no buffers"),
        ({"buffers": "average", "engine": "cohort"}, r"engine\.backend cohort is not possible here: .*has buffers"),
        ({"buffers": "average", "batch_size": 1}, r"a local step fails: .* \(allowed: mini-batches of at least two"),
        ({"buffers": "average", "batch_size": 1, "engine": "parallel"}, "a local step fails"),
    ],
)
def test_what_simulate_refuses(options, message):
    with pytest.raises(UserError, match=message):
        fedflat.simulate("fedavg", **{"model": network(), "clients": clients(), **OPTIONS, **options})


def test_identities_without_the_key_stay(tmp_path):
    assert config(tmp_path).identity == config(tmp_path, buffers="refuse").identity
    assert '"buffers"' not in config(tmp_path).canonical_json()
    assert config(tmp_path, buffers="local").identity != config(tmp_path).identity
