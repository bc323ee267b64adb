"""Back ends compute what the plain loop computes, up to rounding, for every method of the catalog."""

import pytest
import torch

from bench.engine.backends.cohort import Cohort
from bench.engine.batches import EpochBatches
from bench.methods.catalog import CATALOG
from bench.methods.describe import example
from tests.problems import Problem

TOLERANCE = 1e-9
"""On parameters of size 1 in float64, after ten rounds."""


@pytest.mark.parametrize("method", CATALOG)
@pytest.mark.parametrize("plan", ["full", "epochs"])
def test_a_cohort_follows_the_loop(method, plan):
    problem = Problem(1, rounds=10)
    federation = problem.federation(method, example(CATALOG[method]), clip=2.0, weight_decay=0.01, lr_decay=0.95)
    if plan == "epochs":  # mini-batches of unequal size, and unequal numbers of steps
        federation.batch_plan = EpochBatches(federation.batch_plan.split, 2, 4, seed=3)
    states = [federation.start(federation.objective.initial())] * 2
    for active in problem.some():
        ends = [federation.run_round(s, active, backend=b) for s, b in zip(states, (None, Cohort()), strict=True)]
        states = [state for state, _ in ends]
        for name, value in ends[0][1].items():
            assert ends[1][1][name] == pytest.approx(value, rel=1e-8, abs=1e-10), name
    loop, cohort = states
    assert float((loop.w - cohort.w).abs().max()) < TOLERANCE
    for name, vector in loop.server.items():
        assert torch.allclose(vector, cohort.server[name], atol=1e-8), name
    assert loop.clients.keys() == cohort.clients.keys()
    for client, vectors in loop.clients.items():
        for name, vector in vectors.items():
            assert torch.allclose(vector, cohort.clients[client][name], atol=1e-8), name
