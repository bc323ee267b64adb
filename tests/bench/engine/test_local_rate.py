"""The local rate that falls within a round."""

import pytest
import torch

from bench.engine.backends.cohort import Cohort
from bench.engine.step_settings import StepSettings
from bench.experiments.run_config import Training
from bench.input.errors import UserError
from tests.problems import Problem

POLY = {"power": 0.9, "horizon": 2}


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_local_steps_are_those_of_torchs_schedule(momentum):
    federation = Problem(0).federation("fedavg", {}, lr_poly=POLY, local_momentum=momentum)
    objective, state = federation.objective, federation.start(federation.objective.initial())
    [work] = federation.work(state, [2])
    steps = len(work.batches)
    w = torch.nn.Parameter(state.w.clone())
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=momentum or 0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: (1 - k / (2 * steps)) ** 0.9)
    for index in work.batches:
        w.grad = objective.gradient(w.detach().clone(), *federation.local.data.batch(index))[0]
        optimizer.step()
        schedule.step()
    result = federation.train_clients(state, [2])[2].w
    torch.testing.assert_close(result, w.detach())
    constant = Problem(0).federation("fedavg", {}, local_momentum=momentum).train_clients(state, [2])[2].w
    assert not torch.allclose(result, constant)


def test_it_begins_anew_in_each_round_and_in_a_cohort():
    federation = Problem(0).federation("fedsam", {"rho": 0.1}, lr_poly=POLY)
    one = other = federation.start(federation.objective.initial())
    for _ in range(2):
        one, measured = federation.run_round(one, [0, 3])
        other, _ = federation.run_round(other, [0, 3], backend=Cohort())
        assert measured["lr"] == pytest.approx(0.1)
    torch.testing.assert_close(one.w, other.w)


def test_feddrives_rate_is_practically_constant():
    steps = StepSettings(lr=0.05, lr_poly={})
    assert steps.local_rate(0.05, 35, 36) == pytest.approx(0.05, rel=1e-4)


def test_wrong_values_are_refused():
    with pytest.raises(UserError, match=r"horizon"):
        Training.parse({"rounds": 1, "local_steps": 1, "batch_size": 1, "lr": 0.1, "lr_poly": {"horizon": 0}})
