"""The local rate that falls within a round."""

from typing import Annotated

import pytest
import torch
from pydantic import Field
from torch import nn

from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.backends.parallel import Parallel
from fedflat.bench.engine.batches import EpochBatches
from fedflat.bench.engine.method_costs import example
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.experiments.sections.training import Training
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import Correction, Loss, Server
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.corrections.falling_rate import FallingRate
from fedflat.bench.methods.corrections.scaffold import ControlVariates
from fedflat.bench.methods.losses.cross_entropy import CrossEntropy
from fedflat.bench.methods.marks import Scheduled
from fedflat.bench.methods.recipe import Components, Recipe
from tests.problems import Problem
from tests.tape import Tapes
from tests.tiers import case

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


class Linear(Loss):
    """The mean score of each input's class: its gradient does not depend on the parameters of a linear model."""

    name = "linear"
    weighted_by_samples = True

    def value(self, model, x, y, weights, variables):
        scores = model(x).gather(1, y[:, None])[:, 0]
        return scores.mean() if weights is None else scores @ weights


def linear_model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(4, 3, dtype=torch.float64)


FALLING = [
    pytest.param({"lr_poly": {"power": 1, "horizon": 1}}, {}, id="lr_poly"),
    pytest.param({}, {"lr_ratio": 0.1}, id="the method's own"),
    pytest.param({"lr_poly": POLY}, {"lr_ratio": 0.1}, id="both"),
]


ONE_OF_THEM = [case(*one.values, quick=one == FALLING[2], name=one.id) for one in FALLING]


class FallingScaffold(FallingRate, ControlVariates):
    """SCAFFOLD with FedSWA's rate."""

    name = "falling scaffold"


class DirectionServer(Server):
    """w^{t+1} = w^t − the mean direction."""

    name = "direction"

    def step(self, server):
        return server.w - server.mean_direction


def scaffold(values: dict, loss: type[Loss] = CrossEntropy) -> Recipe:
    correction = FallingScaffold if values else ControlVariates
    return Recipe("own", "Own", "a test", Components(correction=correction, loss=loss))


@pytest.mark.parametrize("backend", [Loop, Cohort])
@pytest.mark.parametrize(("settings", "values"), FALLING)
def test_scaffold_under_a_falling_rate_knows_constant_gradients_after_one_round(settings, values, backend):
    """c_i = ∇F_i, so that from the second round on all clients go along the mean gradient, whatever the rate is."""
    problem = Problem(2)
    layer = linear_model()
    federation = problem.federation(scaffold(values, Linear), values, model=linear_model(), **settings)
    state = federation.start(federation.objective.initial())
    everybody = list(range(problem.clients))
    state, _ = federation.run_round(state, everybody, backend=backend())
    for i, (x, y) in enumerate(problem.data()):
        [g] = torch.autograd.grad(layer(x).gather(1, y[:, None]).mean(), [layer.weight])
        torch.testing.assert_close(state.clients[i]["c_i"][: g.numel()], g.flatten())
    moved = torch.stack(
        [work.w - state.w for work in backend().train(federation.local, federation.work(state, [0, 3]))]
    )
    torch.testing.assert_close(moved[0], moved[1])
    after, _ = federation.run_round(state, everybody, backend=backend())
    torch.testing.assert_close(after.server["c"], state.server["c"])
    assert all(torch.allclose(after.clients[i]["c_i"], state.clients[i]["c_i"]) for i in everybody)


@pytest.mark.parametrize(("settings", "values"), ONE_OF_THEM)
def test_scaffolds_fixed_point_under_a_falling_rate(settings, values):
    """With some of the clients in each round: the mean gradient vanishes, and c_i is each client's own."""
    problem = Problem(4, rounds=1000)
    federation = problem.federation(scaffold(values), values, weight_decay=0.15, lr=0.3, **settings)
    state = federation.start(federation.objective.initial())
    for active in problem.some():
        state, _ = federation.run_round(state, active)
    gradients = [
        federation.objective.gradient(state.w, *federation.local.data.batch(federation.batch_sampler.one_pass(i)[0]))[0]
        + 0.15 * state.w
        for i in range(problem.clients)
    ]
    assert float(torch.stack(gradients).mean(0).norm()) < 1e-6
    for i, g in enumerate(gradients):
        torch.testing.assert_close(state.clients[i]["c_i"], g, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", ["scaffold", "feddc", "fedcm"])
@pytest.mark.parametrize("plan", ["full", "epochs"])
def test_vectors_in_units_of_gradients_are_divided_by_the_sum_of_the_rates(method, plan):
    """After the first round, when c_i, c and D were zero before."""
    federation = Problem(1).federation(method, example(CATALOG[method]), lr_poly=POLY)
    if plan == "epochs":
        federation.batch_sampler = EpochBatches(federation.batch_sampler.split, 2, 4, seed=3)
    state = federation.start(federation.objective.initial())
    results = federation.train_clients(state, [0, 3])
    after, _ = federation.run_round(state, [0, 3])
    directions = []
    for i, result in results.items():
        steps = len(federation.batch_sampler(i, 0))
        rates = [0.1 * (1 - k / (2 * steps)) ** 0.9 for k in range(steps)]
        directions.append(-(result.w - state.w) / sum(rates))
        if method != "fedcm":
            torch.testing.assert_close(after.clients[i]["c_i"], directions[-1])
    if method == "fedcm":
        torch.testing.assert_close(after.server["D"], torch.stack(directions).mean(0))


class ScheduledRate(FallingScaffold):
    """SCAFFOLD with FedSWA's rate, whose r changes from round to round."""

    name = "scheduled rate"
    lr_ratio: Annotated[float, Scheduled()] = Field(ge=0, le=1)


@pytest.mark.parametrize("backend", [Loop(), Cohort(), Graph(Tapes()), Parallel()], ids=lambda one: type(one).__name__)
def test_the_sum_of_the_rates_has_the_rounds_own_values(backend):
    """r is 0, 1/4, 1/2, ...: of client and server, by hand."""
    recipe = Recipe("own", "Own", "a test", Components(correction=ScheduledRate, server=DirectionServer))
    rise = {"lr_ratio": {"name": "warmup", "rounds": 4, "start": 0}}
    federation = Problem(1).federation(recipe, {"lr_ratio": 1, "schedules": rise})
    state = federation.start(federation.objective.initial())
    for t in range(3):
        results = federation.train_clients(state, [0, 3])
        after, _ = federation.run_round(state, [0, 3], backend=backend)
        total = 0.1 * sum(1 - (1 - t / 4) * k / 3 for k in range(3))
        directions = [(state.w - result.w) / total for result in results.values()]
        for i, direction in zip((0, 3), directions, strict=True):
            before = state.clients[i]["c_i"] if i in state.clients else torch.zeros_like(state.w)
            torch.testing.assert_close(after.clients[i]["c_i"], before - state.server["c"] + direction)
        torch.testing.assert_close(after.w, state.w - sum(directions) / 2)
        state = after


def test_a_constant_rate_has_exactly_as_many_full_steps_as_steps():
    local = Problem(0).federation("scaffold", {}).local
    assert [local.full_rate_steps(steps) for steps in (1, 3, 1000)] == [1.0, 3.0, 1000.0]


class Backwards(Correction):
    """A rate that becomes negative in the third step."""

    name = "backwards"

    def rate(self, lr, step, steps):
        return lr * (1 - step)


@pytest.mark.parametrize("backend", [Loop, Cohort])
def test_a_negative_rate_is_refused(backend):
    federation = Problem(1).federation(Recipe("own", "Own", "a test", Components(correction=Backwards)), {})
    with pytest.raises(UserError, match=r"^own: rate gives -1 times the local rate in step 3 of \d+ \(allowed"):
        federation.run_round(federation.start(federation.objective.initial()), [0, 1], backend=backend())
