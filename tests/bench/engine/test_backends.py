"""Back ends compute what the plain loop computes, up to rounding, for every method of the catalog."""

import time
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.backends.inputs import RoundPlan
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.backends.parallel import Parallel
from fedflat.bench.engine.backends.rows import leaves, pack
from fedflat.bench.engine.batches import EpochBatches
from fedflat.bench.engine.local import Backend
from fedflat.bench.engine.method_costs import example
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.methods.base import CannotBatchError, Perturbation
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.recipe import Components, Recipe
from tests.bench.engine.rounds_of_backends import (
    CPU,
    NETWORKS,
    SINGLE,
    VARIANTS,
    benches,
    follow_the_loop,
    rounds,
    same_bits,
    share_of_update,
)
from tests.problems import Problem
from tests.tiers import METHODS


def follow(backend: Backend, method: str, plan: str, device: torch.device) -> None:
    """Clients are of unequal size; with epochs their mini-batches differ in size, and their numbers of steps, too."""
    problem, values = Problem(1, rounds=6), example(CATALOG[method])
    federation = problem.federation(method, values, device=device, clip=2.0, weight_decay=0.01, lr_decay=0.95)
    if plan == "epochs":
        federation.batch_sampler = EpochBatches(federation.batch_sampler.split, 2, 4, seed=3)
    follow_the_loop(federation, problem.some(), backend)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("plan", ["full", "epochs"])
def test_a_cohort_follows_the_loop(method, plan):
    follow(Cohort(), method, plan, CPU)


@pytest.mark.parametrize(("method", "values"), VARIANTS.values(), ids=VARIANTS)
def test_a_cohort_follows_the_loop_in_variants_of_methods(method, values):
    problem = Problem(1, rounds=6)
    follow_the_loop(problem.federation(method, example(CATALOG[method]) | values), problem.some(), Cohort())


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("plan", ["full", "epochs"])
@pytest.mark.parametrize("backend", [Cohort, Graph])
def test_cohorts_and_graphs_follow_the_loop_on_a_gpu(backend, method, plan):
    """From the third time on that a function of a step is needed, its graph is replayed."""
    follow(backend(), method, plan, prepare_device("cuda", 1))


@pytest.mark.parametrize("changes", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("method", ["fedsam", "mimelite"])
def test_a_cohort_draws_what_the_loop_draws(method, changes):
    """Augmentations and dropout masks, in local steps and in a pass over all data, on mini-batches of unequal size."""
    bench = benches(method, **changes)[0]
    start = bench.objective.initial()
    [loop], [cohort] = (rounds([(bench, start)], backend) for backend in (Loop(), Cohort()))
    limit = SINGLE if changes != NETWORKS["bf16"] else 0.15  # with 8 bits of mantissa
    assert share_of_update(loop, cohort, start) < limit


def side_by_side(clients: int) -> Parallel:
    """The back end for this number of clients; the number of this thread's threads stays the same."""
    threads = torch.get_num_threads()
    torch.set_num_threads(clients)
    backend = Parallel()
    torch.set_num_threads(threads)
    return backend


@pytest.mark.parametrize("changes", [{}, *NETWORKS.values()], ids=["plain", *NETWORKS])
@pytest.mark.parametrize("method", ["fedsmoo", "mimelite"])
def test_clients_in_parallel_have_the_same_bits_as_one_after_another(method, changes):
    bench = benches(method, **changes)[0]
    start = bench.objective.initial()
    [loop], [parallel] = (rounds([(bench, start)], backend) for backend in (Loop(), side_by_side(3)))
    assert torch.equal(loop.w, parallel.w)
    assert loop.clients.keys() == parallel.clients.keys()
    for i, vectors in loop.clients.items():
        assert all(torch.equal(v, parallel.clients[i][name]) for name, v in vectors.items())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_allows_clients_in_parallel(method):
    problem = Problem(1)
    federation = problem.federation(method, example(CATALOG[method]))
    loop = parallel = federation.start(federation.objective.initial())
    backend = side_by_side(2)
    for active in problem.some():
        loop, expected = federation.run_round(loop, active)
        parallel, measured = federation.run_round(parallel, active, backend=backend)
        assert measured == expected
        assert torch.equal(loop.w, parallel.w)


class Failing(Perturbation):
    """Fails for client 0 as soon as client 1 has begun, which is slow; counts the steps of client 1."""

    name = "failing"

    def delta(self, w, gradient, client):
        steps[client.id] += 1
        if client.id == 0:
            while not steps[1]:
                time.sleep(0.001)
            raise ZeroDivisionError
        time.sleep(0.001)
        return gradient(w)


steps: Counter[int] = Counter()


def test_no_client_is_trained_after_an_error_of_another():
    federation = Problem(0).federation(Recipe("own", "Own", "a test", Components(Failing)), {})
    works = federation.work(federation.start(federation.objective.initial()), [0, 1, 2])
    many = [replace(work, batches=work.batches[:1] * 10_000) for work in works]
    backend = side_by_side(2)
    with pytest.raises(ZeroDivisionError):
        backend.train(federation.local, many)
    backend._pool.shutdown(wait=True)
    assert 0 < steps[1] < 10_000
    assert not steps[2], "it has not begun"


@pytest.mark.parametrize("method", METHODS)
def test_a_client_has_the_same_bits_with_other_clients(method):
    """So it does not matter which of a cell's seeds are requested, nor which of them resumed behind the others."""
    bench = benches(method)[0]
    works = bench.federation.work(bench.federation.start(bench.objective.initial()), range(5))
    together = Cohort().train(bench.federation.local, works)
    for count in (1, 2, 3):
        for one, other in zip(Cohort().train(bench.federation.local, works[:count]), together, strict=False):
            assert one.has_bits_of(other)


SWA_FORMS = [
    {"start": 1, "cycle": 1},
    *({"start": 1, "cycle": 2, "lr_end": 0.001, "collect": collect} for collect in ("end", "release", "alg1", "none")),
]


@pytest.mark.parametrize("method", METHODS)
def test_seeds_trained_together_are_what_each_is_alone(method):
    check_seeds_together(benches(method))


@pytest.mark.parametrize(
    ("method", "swa"),
    [
        *(("fedavg", swa) for swa in SWA_FORMS),
        *((method, SWA_FORMS[1]) for method in ("fedsam", "fedasam", "mimelite")),
    ],
)
def test_seeds_trained_together_with_swa_are_what_each_is_alone(method, swa):
    check_seeds_together(benches(method, **{f"methods.{method}.hyperparameters.swa": swa}))


def check_seeds_together(parts):
    """Results of clients, measurements, and the complete states, for all seeds and for two of them."""
    states = [bench.federation.start(bench.objective.initial()) for bench in parts]
    for _ in range(3):
        works = [bench.work(state) for bench, state in zip(parts, states, strict=True)]
        alone = [Cohort().train(bench.federation.local, own) for bench, own in zip(parts, works, strict=True)]
        for company in ([0, 1, 2], [1, 2]):
            results = iter(Cohort().train(parts[0].federation.local, [work for k in company for work in works[k]]))
            for k in company:
                own = [next(results) for _ in works[k]]
                assert all(one.has_bits_of(other) for one, other in zip(alone[k], own, strict=True))
                (one, measured), (other, expected) = (
                    parts[k].federation.aggregate(states[k], works[k], given) for given in (own, alone[k])
                )
                assert measured.numbers() == expected.numbers()
                assert same_bits(one, other)
        states = [
            bench.federation.aggregate(state, own, results)[0]
            for bench, state, own, results in zip(parts, states, works, alone, strict=True)
        ]


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_memory_format_of_images_is_rounding(channels_last):
    bench = benches("fedsam")[0]
    start = bench.objective.initial()
    [plain] = rounds([(bench, start)], Loop())
    bench.objective.channels_last = channels_last
    [other] = rounds([(bench, start)], Loop())
    assert share_of_update(plain, other, start) < SINGLE


def test_plans_survive_being_packed():
    """As for a GPU, to which they are sent in one transfer."""
    bench = benches("mimelite", **NETWORKS["augmented"])[0]
    state = bench.federation.start(bench.objective.initial())
    works = sorted(bench.federation.work(state, bench.active(state)), key=lambda work: -len(work.batches))
    plan = RoundPlan.of(bench.federation.local, works)
    tensors = {name: getattr(plan, name) for name in ("rows", "rate", "steps", "passes")}
    packed, unpack = pack(tensors)
    for one, other in zip(leaves(tensors), leaves(unpack(packed.clone())), strict=True):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype


class Branching(Perturbation):
    """Looks at a number: one client's matter."""

    name = "branching"

    def delta(self, w, gradient, client):
        g = gradient(w)
        return g if float(g.norm()) > 1e3 else -g


class Drawing(Perturbation):
    """Draws from the client's own stream."""

    name = "drawing"

    def delta(self, w, gradient, client):
        return 0.01 * torch.randn(w.shape, generator=client.stream("noise"), dtype=w.dtype)


@pytest.mark.parametrize("component", [Branching, Drawing])
def test_components_that_cannot_be_batched_are_reported(component):
    federation = Problem(0).federation(Recipe("own", "Own", "a test", Components(component)), {})
    state = federation.start(federation.objective.initial())
    with pytest.raises(CannotBatchError):
        federation.run_round(state, [0, 1], backend=Cohort())
    after, _ = federation.run_round(state, [0, 1])
    assert torch.isfinite(after.w).all()


class BatchStatistics(nn.Module):
    """Scores that depend on the whole mini-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Tanh(), nn.Linear(5, 3)
        )

    def forward(self, x):
        return self.body(x)


def test_models_that_look_across_a_mini_batch_follow_the_loop():
    """Their mini-batches are not filled up; those of a single sample cannot be."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BatchStatistics().double()
    federation = Problem(1).federation("fedsam", {"rho": 0.1}, model=model)
    federation.batch_sampler = EpochBatches(federation.batch_sampler.split, 2, 3, seed=3)
    assert not federation.local.is_separable
    follow_the_loop(federation, [[0, 3]] * 3, Cohort())  # 5 and 11 samples: short batches of two
