"""The model lstm: torch's own LSTM, in all back ends, and differentiable twice."""

import pytest
import torch
from torch import nn

import fedflat
from fedflat.bench.data.tokens import TokenShape
from fedflat.bench.engine.objective import Objective
from fedflat.bench.models import build_model, parse_model

X = torch.randint(11, (6, 7), generator=torch.Generator().manual_seed(0))
Y = torch.arange(6) % 3


def built(**options):
    return build_model(parse_model({"name": "lstm", **options}), TokenShape((7,), 11), 3, 0)


def test_it_is_torchs_lstm():
    model = built(hidden=[5, 5])
    with torch.random.fork_rng():
        torchs = nn.LSTM(8, 5, 2, batch_first=True)
    with torch.no_grad():
        for k, layer in enumerate(model.layers):
            for name, part in (("ih", layer.of_input), ("hh", layer.of_state)):
                getattr(torchs, f"weight_{name}_l{k}").copy_(part.weight)
                getattr(torchs, f"bias_{name}_l{k}").copy_(part.bias)
    assert torch.allclose(model.features(X), torchs(model.embedding(X))[0][:, -1], atol=1e-6)


def test_defaults_are_those_of_leaf():
    """LEAF's Shakespeare: an embedding of 8 numbers and two layers of 256 units; torch has two biases in each."""
    model = build_model(parse_model("lstm"), TokenShape((80,), 80), 80, 0)
    cells = 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2)
    assert sum(p.numel() for p in model.parameters()) == 80 * 8 + cells + 80 * 257 == 819_920


def test_weights_are_drawn_as_torchs():
    model = built(hidden=[16, 400])
    for layer, width in zip(model.layers, (16, 400), strict=True):
        for parameter in layer.parameters():
            assert parameter.abs().max() <= width**-0.5
        assert layer.of_state.weight.detach().std() == pytest.approx((width * 3) ** -0.5, rel=0.1)


def test_gradients_under_vmap_are_those_of_each_client():
    objective = Objective(built(hidden=[5, 4]).double())
    w = torch.stack([objective.initial() * scale for scale in (1.0, 1.5, 2.0)])

    def loss(model, _):
        return nn.functional.cross_entropy(model(X), Y)

    rows = torch.func.vmap(lambda row: objective.functional_gradients(row, loss, {})[0])(w)
    alone = torch.stack([objective.gradient(row, X, Y)[0] for row in w])
    assert torch.allclose(rows, alone, atol=1e-12)


def test_back_ends_agree():
    model, ids = built(hidden=[5]), (X.repeat(4, 1), Y.repeat(4))
    how = {"partition": {"name": "iid", "clients": 3}, "rounds": 2, "local_steps": 3, "batch_size": 5, "lr": 0.5}
    ends = [
        fedflat.simulate("fedsam", model, ids, **how, hyperparameters={"rho": 0.1}, engine=engine).global_params[-1]
        for engine in ("loop", "cohort", "parallel")
    ]
    assert not torch.equal(ends[0], Objective(model).initial())
    for other in ends[1:]:
        assert torch.allclose(other, ends[0], atol=1e-6)


def test_it_has_second_derivatives():
    objective = Objective(built(hidden=[5]).double())
    w, step = objective.initial(), 1e-5
    v = torch.randn(len(w), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    objective.load(w)
    loss = nn.functional.cross_entropy(objective.module(X), Y)
    first = torch.cat([g.flatten() for g in torch.autograd.grad(loss, objective.parameters, create_graph=True)])
    product = torch.cat([g.flatten() for g in torch.autograd.grad(first @ v, objective.parameters)])
    difference = (objective.gradient(w + step * v, X, Y)[0] - objective.gradient(w - step * v, X, Y)[0]) / (2 * step)
    assert torch.allclose(product, difference, atol=1e-6)
