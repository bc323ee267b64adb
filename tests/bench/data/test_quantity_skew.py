"""Clients with unequal numbers of images and the same labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedflat.analysis.layouts.titles import partition_headings, partition_title
from fedflat.bench.data.partitions.quantity_skew import QuantitySkew
from fedflat.bench.input.errors import UserError
from tests.bench.data.labelled import LABELS, drawn


@settings(max_examples=30, deadline=None)
@given(clients=st.integers(1, 12), alpha=st.sampled_from([1e-9, 0.3, 100.0]), seed=st.integers(0, 9))
def test_every_image_goes_to_one_client_and_no_client_has_too_few(clients, alpha, seed):
    split = drawn(QuantitySkew(clients=clients, alpha=alpha, least=5), seed=seed)
    assert sorted(np.concatenate(split)) == list(range(len(LABELS)))
    assert min(map(len, split)) >= 5


def test_small_alphas_give_few_large_clients():
    def largest(alpha: float) -> float:
        return float(np.mean([max(map(len, drawn(QuantitySkew(clients=10, alpha=alpha), seed=s))) for s in range(5)]))

    assert largest(0.05) > 2 * largest(50)


def test_too_few_images_are_refused():
    with pytest.raises(UserError, match="too few for least = 10"):
        drawn(QuantitySkew(clients=len(LABELS), alpha=1))


def test_its_words():
    assert partition_title("quantity_skew-0.5") == "Quantity skew 0.5"
    assert partition_headings("quantity_skew-0.5") == ("Quantity skew", "α = 0.5")
