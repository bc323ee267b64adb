"""The flat parameter vector and its named parts."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedflat.bench.numerics.flat import FlatLayout

SHAPES = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=6)


@given(SHAPES)
def test_the_parts_are_views_that_together_are_the_vector(shapes):
    layout = FlatLayout(tuple(f"tensor{i}" for i in range(len(shapes))), tuple(shapes))
    flat = torch.arange(layout.total, dtype=torch.float32)
    parts = layout.split(flat)
    assert [tuple(part.shape) for part in parts.values()] == shapes
    assert torch.equal(torch.cat([part.flatten() for part in parts.values()] or [flat]), flat)
    for part in parts.values():
        part.add_(1)
    assert torch.equal(flat, torch.arange(layout.total) + 1.0), "the parts are views"
