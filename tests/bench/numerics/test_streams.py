"""Random streams depend on their key alone, and differ between keys."""

import itertools

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedflat.bench.numerics.streams import numpy_stream, torch_seed, torch_stream

KEYS = st.tuples(st.integers(0, 2**31), st.sampled_from(["batches", "participation", "partition"]), st.integers(0, 999))


@given(KEYS, st.integers(0, 20))
def test_a_stream_starts_anew_from_its_key(key, drawn_elsewhere):
    first = torch_stream(*key), numpy_stream(*key)
    expected = torch.rand(4, generator=first[0]), first[1].random(4)
    numpy_stream(0, "another").random(drawn_elsewhere)
    torch.rand(drawn_elsewhere, generator=torch_stream(0, "another"))
    assert torch.equal(torch.rand(4, generator=torch_stream(*key)), expected[0])
    np.testing.assert_array_equal(numpy_stream(*key).random(4), expected[1])


@given(st.sets(KEYS, min_size=2, max_size=20))
def test_keys_differ_in_their_streams(keys):
    assert len({torch_seed(*key) for key in keys}) == len(keys)
    assert all(0 <= torch_seed(*key) < 2**63 for key in keys)


def test_the_position_of_an_index_counts():
    """Client 1 in round 2 is not client 2 in round 1, nor client 12 without a round."""
    seeds = [torch_seed(0, "batches", *indices) for indices in [(1, 2), (2, 1), (12,), (1, 2, 0)]]
    assert all(a != b for a, b in itertools.combinations(seeds, 2))


def test_the_streams_stay_those_of_earlier_versions():
    """Stored runs and baselines can be repeated only while these draws stay the same."""
    assert torch_seed(0, "batches", 1, 2) == 6589288072606847788
    np.testing.assert_array_equal(numpy_stream(3, "partition").integers(0, 1000, 4), [38, 19, 587, 37])
