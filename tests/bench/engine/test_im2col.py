"""Convolutions as matrix products compute what torch's convolutions compute."""

import warnings

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional as F

from fedflat.bench.engine.backends.branches import Branches
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.objective import Objective
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.models import build_model, parse_model
from fedflat.bench.models.im2col import Im2col
from fedflat.bench.training.calibration import _Calibration
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.run_setup import RunSetup
from tests.bench.engine.rounds_of_backends import SINGLE, benches, rounds, share_of_update
from tests.bench.training.test_engine_choice import engine_lines
from tests.problems import train
from tests.tape import Tapes

KINDS = {
    "plain": {},
    "stride": {"stride": 2, "padding": 1},
    "rectangular": {"kernel_size": (3, 2), "stride": (1, 2), "padding": (0, 1)},
    "without bias": {"bias": False},
    "dilation": {"dilation": 2},
    "groups": {"groups": 2},
    "padding by name": {"padding": "same"},
    "many channels": {"in_channels": 8},
}


def test_bf16_stays_bf16():
    with torch.random.fork_rng(devices=[]):
        layer, x = nn.Conv2d(2, 3, 3), torch.rand(1, 2, 5, 5)
    with torch.autocast("cpu", torch.bfloat16), Im2col():
        assert layer(x).dtype == torch.bfloat16


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_values_and_gradients_of_a_layer(options):
    stream = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        layer = nn.Conv2d(**({"in_channels": 4, "out_channels": 6, "kernel_size": 3} | options)).double()
    x = torch.randn(5, layer.in_channels, 9, 8, generator=stream, dtype=torch.float64)
    weight, bias = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()

    def loss(weight, x):
        out = layer._conv_forward(x, weight, bias)
        return (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum()

    expected, expected_grads = layer(x), grad(loss, argnums=(0, 1))(weight, x)
    with Im2col():
        assert torch.allclose(layer(x), expected, rtol=1e-12, atol=1e-12)
        for one, other in zip(grad(loss, argnums=(0, 1))(weight, x), expected_grads, strict=True):
            assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


def test_weights_of_several_clients_are_one_product():
    """No convolution is left, and no operation of one client alone."""
    weights, x = torch.randn(3, 6, 4, 3, 3, generator=torch.Generator().manual_seed(0)), torch.ones(3, 5, 4, 8, 8)

    def loss(weight, x):
        return F.conv2d(x, weight, padding=1).sum()

    with torch.profiler.profile() as profile, Im2col(), warnings.catch_warnings():
        warnings.simplefilter("error")  # vmap warns of operations that it computes one client after the other
        vmap(grad(loss, argnums=(0, 1)))(weights, x)
    names = [event.name for event in profile.events()]
    assert names.count("aten::bmm") == 2 * 3, "forward, the gradients of weights and inputs, each in and below vmap"
    assert "aten::col2im" in names
    assert not [name for name in names if "conv" in name or "unfold_backward" in name]


@pytest.mark.parametrize("model", ["lenet", "resnet18_gn", "cnn_gn"])
def test_gradients_of_models(model):
    stream = torch.Generator().manual_seed(0)
    shape = (1, 8, 8) if model == "cnn_gn" else (3, 32, 32)
    objective = Objective(build_model(parse_model(model), shape, 10, 0).double())
    w, x = objective.initial(), torch.randn(2, *shape, generator=stream, dtype=torch.float64)

    def gradient(w):
        return objective.functional_gradients(
            w, lambda network, _: F.cross_entropy(network(x), torch.tensor([1, 2])), {}
        )[0]

    expected = gradient(w)
    objective.im2col = True
    assert torch.allclose(gradient(w), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("backend", [Cohort, lambda: Graph(Tapes()), lambda: Branches(Tapes())])
@pytest.mark.parametrize("method", ["fedsam", "mimelite", "fedrobust", "fedrcl"])
def test_cohorts_follow_the_loop(method, backend):
    bench = benches(method)[0]
    start = bench.objective.initial()
    [loop] = rounds([(bench, start)], Loop())
    bench.objective.im2col = True
    [cohort] = rounds([(bench, start)], backend())
    assert share_of_update(loop, cohort, start) < SINGLE


def test_it_can_be_requested(tmp_path):
    changes = {"training.rounds": 2, "engine.backend": "cohort", "engine.convolution": "im2col"}
    run = train(
        load_experiment("quick", changes).cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0],
        tmp_path / "run",
        torch.device("cpu"),
    )
    assert engine_lines(run.path)[-1] == "cohort, im2col, 1 thread"
    assert run.provenance["engine"]["im2col"]


def test_both_are_measured_on_a_gpu_only():
    config = load_experiment("quick").cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0]
    setup = RunSetup.build(config, torch.device("cpu"))
    measured = _Calibration(setup, setup.federation.start(setup.objective.initial()))
    assert list(measured._cohorts(EngineChoice())) == [EngineChoice("cohort")]
    measured.device = torch.device("cuda", 0)
    assert [(choice.backend, choice.im2col) for choice in measured._cohorts(EngineChoice())] == [
        ("cohort", False), ("cohort", True), ("graph", False), ("graph", True), ("branches", False), ("branches", True),
    ]  # fmt: skip
