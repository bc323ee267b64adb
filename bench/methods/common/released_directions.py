"""Directions as the released codes of FedLESAM and FedWMSAM compute them from a flat vector v.

For tensor j of the model, they intend v_j / Σ_l ‖v_l‖, where v_j is tensor j of v. They compute v[j] / Σ_l |v[l]|, one
number for the whole tensor, where v[j] is the j-th number of v.
"""

import torch
from torch import Tensor

from fedflat.bench.methods.base import EPS, norm
from fedflat.bench.numerics.flat import FlatLayout


def over_sum_of_norms(v: Tensor, layout: FlatLayout) -> Tensor:
    """v divided by the sum of the norms of its tensors."""
    lengths = torch.cat([norm(tensor) for tensor in v.split(layout.sizes, dim=-1)], dim=-1)
    return v / (lengths.sum(-1, keepdim=True) + EPS)


def one_number_each(v: Tensor, layout: FlatLayout) -> Tensor:
    """For each tensor one number, taken from the first numbers of v, of which there are as many as tensors."""
    first = v[..., : len(layout.sizes)]
    shifts = first / (first.abs().sum(-1, keepdim=True) + EPS)
    return torch.cat([shift.expand(size) for shift, size in zip(shifts.split(1), layout.sizes, strict=True)])
