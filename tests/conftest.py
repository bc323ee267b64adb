"""One thread per test process: tiny operations on busy cores crawl with more."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def global_random_state_is_left_alone():
    """Nothing in the project draws from torch's global generator."""
    before = torch.random.get_rng_state()
    yield
    assert torch.equal(before, torch.random.get_rng_state()), "torch's global random state was used"
