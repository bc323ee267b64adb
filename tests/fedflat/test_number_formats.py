"""Models of 16 bits are measured in float32 and refused in training; in float32, no method divides by a norm of 0."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.utils import skip_init

import fedflat
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.engine.method_costs import example
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.models import build_model, parse_model
from tests.tiers import METHODS

HALF = [torch.float16, torch.bfloat16]
X, Y = torch.randn(24, 3, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 2


@pytest.fixture
def model():
    """Six weights from −1 to 1."""
    layer = skip_init(nn.Linear, 3, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.linspace(-1, 1, 6).view(2, 3))
    return layer


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_measures_of_a_half_model_are_those_of_its_copy_in_float32(model, dtype):
    """Computed in bf16 itself, they would be off by up to 4e-3."""
    half = deepcopy(model).to(dtype)
    single, before = deepcopy(half).float(), half.weight.detach().clone()
    for x in X, X.to(dtype):
        assert fedflat.hessian(half, (x, Y), k=2) == fedflat.hessian(single, (x.float(), Y), k=2)
        assert fedflat.sharpness(half, (x, Y)) == fedflat.sharpness(single, (x.float(), Y)) > 0
        plane = fedflat.surface(single, (x.float(), Y), points=3)
        assert fedflat.surface(half, (x, Y), points=3).equals(plane)
    assert half.weight.dtype == dtype and torch.equal(half.weight, before)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_a_half_model_is_not_trained(model, dtype, tmp_path):
    message = rf"parameters are in {str(dtype)[6:]}, .* \(allowed: float32 or float64, such as model.float\(\);"
    with pytest.raises(UserError, match=message):
        fedflat.simulate("fedavg", model.to(dtype), [(X, Y)], rounds=1, local_steps=1, lr=0.1)
    source = (
        f"import torch\nfrom torch import nn\ndef net(shape, classes):\n    return nn.Linear(3, classes).to({dtype})\n"
    )
    (tmp_path / "half.py").write_text(source, encoding="utf-8")
    trust(source.encode())
    with pytest.raises(UserError, match=message):
        build_model(parse_model(f"{tmp_path / 'half.py'}:net"), (3,), 2, 0)


class Constant(nn.Module):
    """Scores that do not depend on the inputs, nor, in value, on the weights: all gradients are 0."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 6).view(2, 3))

    def forward(self, x):
        """Zeros."""
        return (x @ self.weight.T) * 0

    def feature_levels(self):
        """None, as FedRCL asks."""
        return []


@pytest.mark.parametrize("method", METHODS)
def test_a_model_without_gradient_stays_finite_in_float32(method):
    options = {"hyperparameters": example(CATALOG[method]), "rounds": 2, "local_steps": 2, "lr": 0.1}
    result = fedflat.simulate(method, Constant(), [(X, Y), (X, Y)], **options)
    assert torch.isfinite(result.global_params[-1]).all()
    assert not result.history["diverged"].any()
    assert result.history["local_loss"].tolist() == pytest.approx([0.6931472] * 2)
