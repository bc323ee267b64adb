"""The functions that become CUDA graphs compute what the loop computes, when their operations are only repeated."""

import pytest
import torch

from fedflat.bench.engine.backends.branches import Branches
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.backends.static import computed_rows
from fedflat.bench.engine.batches import EpochBatches
from fedflat.bench.engine.method_costs import example
from fedflat.bench.methods.base import CannotBatchError, Correction
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.recipe import Components, Recipe
from tests.bench.engine.rounds_of_backends import NETWORKS, SINGLE, benches, follow_the_loop, rounds, share_of_update
from tests.problems import Problem, joint_round
from tests.tape import Tapes
from tests.tiers import case, in_turn

PARTICIPANTS = [[0, 1], [1, 3], [0, 2], [2], [0, 1, 2, 3], [1, 2, 3], [0], [0, 1, 2, 3], [1, 2], [0, 3]]
"""Numbers of clients as in Bernoulli sampling: new ones and old ones, more than ever before, and fewer."""


def follow(method, plan, kind=Graph, **changes):
    """Rounds by the loop and by graphs of one step; the captures."""
    problem = Problem(1)
    values = example(CATALOG[method]) if isinstance(method, str) else {}
    settings = {"clip": 2.0, "weight_decay": 0.01, "lr_decay": 0.95, "local_momentum": 0.9, **changes}
    federation = problem.federation(method, values, **settings)
    if plan == "epochs":
        federation.batch_sampler = EpochBatches(federation.batch_sampler.split, 2, 4, seed=3)
    tapes = Tapes()
    follow_the_loop(federation, PARTICIPANTS, kind(tapes))
    return tapes


WAYS = [("full", Graph), ("epochs", Branches), ("full", Branches), ("epochs", Graph)]


@pytest.mark.parametrize(("method", "plan", "kind"), in_turn(*WAYS))
def test_replayed_steps_follow_the_loop(method, plan, kind):
    tapes = follow(method, plan, kind)
    if CATALOG[method].build(example(CATALOG[method])).loss.separable:
        assert tapes.replays > tapes.captured > 0


@pytest.mark.parametrize("direction", ["neighbour", "fusion"])
def test_tensors_that_appear_in_the_first_step(direction):
    """FedTOGA's g′, and the momentum's buffer, are not there before."""
    recipe = CATALOG["fedtoga"]
    problem, values = Problem(1), example(recipe) | {"direction": direction}
    federation = problem.federation("fedtoga", values, local_momentum=0.9)
    follow_the_loop(federation, PARTICIPANTS, Graph(Tapes()))


ON_NETWORKS = [
    case(method, network, kind, quick=bool((m + n + k) % 2))
    for m, method in enumerate(("fedsam", "mimelite", "fedrcl"))
    for n, network in enumerate(NETWORKS)
    for k, kind in enumerate((Graph, Branches))
    if (method, network) != ("fedrcl", "mixed-up")  # FedRCL needs one label per image
]


@pytest.mark.parametrize(("method", "network", "kind"), ON_NETWORKS)
def test_networks_augmentations_and_dropout(method, network, kind):
    changes = NETWORKS[network]
    bench = benches(method, **changes)[0]
    start = bench.objective.initial()
    [loop], [graph] = (rounds([(bench, start)], backend) for backend in (Loop(), kind(Tapes())))
    limit = SINGLE if network != "bf16" else 0.15
    assert share_of_update(loop, graph, start) < limit


def test_a_small_mini_batch_after_larger_ones():
    """Mixup mixes with a position of the mini-batch, so positions of earlier rounds may lie beyond it."""
    bench = benches("fedsam", **NETWORKS["mixed-up"])[0]
    first, *others = bench.federation.batch_sampler.split
    bench.federation.batch_sampler = EpochBatches([first[:3], *others], 1, 16, seed=0)
    loop = other = bench.federation.start(bench.objective.initial())
    backend = Graph(Tapes())
    for active in ([1, 2], [1, 2], [0]):
        [(loop, _)] = joint_round([bench.federation], [loop], [active], Loop())
        [(other, _)] = joint_round([bench.federation], [other], [active], backend)
    assert torch.allclose(loop.w, other.w, atol=1e-5)


def test_seeds_together():
    parts = [(bench, bench.objective.initial()) for bench in benches("fedsmoo")]
    for one, other in zip(rounds(parts, Graph(Tapes())), rounds(parts, Cohort()), strict=True):
        assert torch.allclose(one.w, other.w, atol=1e-6)


def test_few_functions_are_captured_whatever_clients_take_part():
    """50 rounds in which 1 to 20 clients take part, with unequal numbers of mini-batches."""
    bench = benches("scaffold", **{"training.local_epochs": 2})[0]
    federation, tapes = bench.federation, Tapes()
    state, backend = federation.start(bench.objective.initial()), Graph(tapes)
    stream = torch.Generator().manual_seed(0)
    steps, captured = 0, []
    for _ in range(50):
        count = int(torch.randint(1, 21, (), generator=stream))
        active = torch.randperm(20, generator=stream)[:count].tolist()
        [(state, _)] = joint_round([federation], [state], [active], backend)
        steps += max(len(federation.batch_sampler(i, 0)) for i in active)
        captured.append(tapes.captured)
    assert torch.isfinite(state.w).all()
    assert captured[-1] < steps / 6
    assert captured[-1] - captured[-20] < 8, "nearly all of them in the first rounds"


def test_numbers_of_rows():
    assert [computed_rows(count) for count in (1, 2, 7, 10, 11, 30, 33, 100, 101)] == [
        2,
        2,
        8,
        10,
        12,
        30,
        40,
        100,
        120,
    ]
    for count in range(2, 2000):
        assert count <= computed_rows(count) <= 4 / 3 * count + 1


@pytest.mark.parametrize("method", ["fedsmoo", "fedrobust", "fedtoga"])
def test_bits_do_not_depend_on_earlier_rounds(method):
    """As after an interruption, when memory and graphs are made anew, for another number of clients."""
    bench = benches(method)[0]
    federation, sizes = bench.federation, [1, 4, 2, 13, 5, 4, 7, 1, 13]
    one = other = federation.start(bench.objective.initial())
    backend = Graph(Tapes())
    for begin, count in enumerate(sizes):
        active = [(begin + i) % 20 for i in range(count)]
        [(one, _)] = joint_round([federation], [one], [active], backend)
        [(other, _)] = joint_round([federation], [other], [active], Graph(Tapes()))
        assert torch.equal(one.w, other.w)


# --- What Python knows in a step


class Fading(Correction):
    """A direction that depends on the number of the step, as a number."""

    name = "fading"

    def direction(self, g, w, client):
        return g * 0.9**client.step


class Branching(Correction):
    """Python decides by the number of the step."""

    name = "branching on steps"

    def direction(self, g, w, client):
        return g if client.step < 2 else -g


class Growing(Correction):
    """A tensor that appears in the third step."""

    name = "growing"

    def direction(self, g, w, client):
        client.scratch[f"seen {len(client.scratch)}"] = g
        return g


class Keeping(Correction):
    """Tensors that are kept from the step before, so that one takes the place of another."""

    name = "keeping"

    def direction(self, g, w, client):
        before = client.scratch.get("w", w)
        client.scratch["w before"], client.scratch["w"] = before, w
        return g + 0.1 * (w - before)


def own(component) -> Recipe:
    return Recipe("own", "Own", "a test", Components(correction=component))


@pytest.mark.parametrize("component", [Fading, Keeping])
@pytest.mark.parametrize("plan", ["full", "epochs"])
def test_numbers_of_steps_and_tensors_that_move(component, plan):
    assert follow(own(component), plan).captured > 0


def test_branches_on_the_number_of_the_step_are_reported():
    with pytest.raises(CannotBatchError, match="no graph can be captured"):
        follow(own(Branching), "full")


def test_tensors_that_come_and_go_are_reported():
    with pytest.raises(CannotBatchError, match="change their names or shapes"):
        follow(own(Growing), "full")


def test_no_graph_without_a_gpu():
    federation = Problem(0).federation("fedavg", {})
    state = federation.start(federation.objective.initial())
    with pytest.raises(CannotBatchError, match="NVIDIA"):
        federation.run_round(state, [0, 1], backend=Graph())
