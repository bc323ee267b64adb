"""Number formats of the forward pass."""

import pytest
import torch

from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.precision import autocast, prepare_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_forward_pass_has_the_format_and_the_parameters_keep_theirs(precision, dtype):
    layer = torch.nn.utils.skip_init(torch.nn.Linear, 3, 2)
    with autocast(precision, CPU):
        output = layer(torch.ones(1, 3))
    output.float().sum().backward()
    assert output.dtype == dtype
    assert layer.weight.dtype == layer.weight.grad.dtype == torch.float32


def test_tf32_is_refused_on_a_cpu():
    with pytest.raises(UserError, match=r"tf32 exists on NVIDIA GPUs only \(allowed here: fp32, bf16\)"):
        prepare_precision("tf32", CPU)
