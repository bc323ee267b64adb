"""What the engine gives to the hooks of a client: teachers, gradients before the first step, noise, participants."""

import pytest
import torch
from torch import nn

from fedflat.bench.engine.backends.branches import Branches
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.backends.parallel import Parallel
from fedflat.bench.engine.batches import EpochBatches
from fedflat.bench.engine.objective import Objective
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import CannotBatchError, Correction, Loss
from fedflat.bench.methods.perturbations.sam import SAM
from fedflat.bench.methods.recipe import Components, Recipe
from fedflat.bench.models.dropout import Dropout, KeyedDraws
from fedflat.bench.models.network import cross_entropy
from tests.bench.engine.rounds_of_backends import follow_the_loop
from tests.problems import Problem
from tests.tape import Tapes

BACKENDS = [Loop, Parallel, Cohort, lambda: Graph(Tapes()), lambda: Branches(Tapes())]
NAMES = ["loop", "parallel", "cohort", "graph", "branches"]


class Distilled(Loss):
    """Squared distance from the teacher's scores: ten lines."""

    name = "distilled"
    teachers = ("first",)
    server_state = ("first",)

    def start_server(self, w0):
        return {"first": w0.clone()}

    def broadcast(self, w, state):
        return {"first": state["first"]}

    def value(self, model, x, y, weights, variables):
        scores = model(x)
        distances = ((scores - variables["first"]) ** 2).sum(1)
        return cross_entropy(scores, y, weights) + (distances.mean() if weights is None else distances @ weights)


class WithoutTeacher(Distilled):
    def broadcast(self, w, state):
        return {}


class OfAnotherSize(Distilled):
    def broadcast(self, w, state):
        return {"first": state["first"][:5]}


class Records(Correction):
    """Stores what the client gets."""

    name = "records"
    takes_mini_batch_gradient = True

    def noises(self):
        return ("a", "b")

    def start_client(self, w):
        return {name: w.new_zeros(w.shape) for name in ("first", "fourth", "a", "b", "M")}

    def start(self, client):
        for name, step in (("first", 0), ("fourth", 3)):
            client.scratch[name] = client.mini_batch_gradient(client.w_global, step)

    def finish(self, w, client):
        client.state.update({name: client.scratch[name] for name in ("first", "fourth")}, **client.noise)
        client.state["M"] = torch.zeros_like(w) + client.participants


class Late(Records):
    """Asks for a mini-batch gradient when the steps have begun."""

    name = "late"

    def direction(self, g, w, client):
        return g + client.mini_batch_gradient(w, 0)


class Undeclared(Records):
    name = "undeclared"
    takes_mini_batch_gradient = False


def own(**components) -> Recipe:
    return Recipe("own", "Own", "a test", Components(**components))


def in_epochs(recipe: Recipe):
    """Clients of unequal size, in mini-batches of unequal size: 4, 4, 6 and 6 local steps."""
    federation = Problem(1).federation(recipe, {}, weight_decay=0.01, local_momentum=0.9)
    federation.batch_sampler = EpochBatches(federation.batch_sampler.split, 2, 4, seed=3)
    return federation


@pytest.mark.parametrize("backend", BACKENDS[1:], ids=NAMES[1:])
@pytest.mark.parametrize("components", [{"loss": Distilled}, {"correction": Records}], ids=["teacher", "records"])
def test_every_back_end_follows_the_loop(components, backend):
    participants = [[0, 1], [1, 3], [0, 1, 2, 3], [2], [0, 1, 2, 3]]
    follow_the_loop(in_epochs(own(**components)), participants, backend())


# Teachers.


def test_a_teacher_is_a_constant():
    """The gradient of the distance by hand, and one forward pass for each mini-batch."""
    federation = Problem(1).federation(own(loss=Distilled), {})
    state = federation.start(federation.objective.initial())
    state.w = state.w + 0.1
    [index] = federation.batch_sampler.one_pass(2)
    x, y = federation.local.data.batch(index)
    w = torch.nn.Parameter(state.w.clone())
    layout, module = federation.objective.layout, Problem(1).model()
    scores, teacher = (
        torch.func.functional_call(module, layout.split(v), (x,)) for v in (w, state.server["first"].detach())
    )
    distance = ((scores - teacher.detach()) ** 2).sum(1).mean()
    [g] = torch.autograd.grad(nn.functional.cross_entropy(scores, y) + distance, w)
    [work] = federation.work(state, [2])
    one_step = type(work)(**{**vars(work), "batches": work.batches[:1]})
    [result] = Loop().train(federation.local, [one_step])
    torch.testing.assert_close(result.w, state.w - 0.1 * g)
    assert federation.run_round(state, [0, 2])[1]["teacher_passes"] == 1


def test_two_gradients_of_a_step_share_the_teachers_pass():
    federation = Problem(1).federation(own(perturbation=SAM, loss=Distilled), {"rho": 0.1})
    _, measured = federation.run_round(federation.start(federation.objective.initial()), [0, 1])
    assert (measured["gradients"], measured["teacher_passes"]) == (2, 1)


def test_other_methods_have_no_such_column():
    federation = Problem(1).federation("fedsam", {"rho": 0.1})
    _, measured = federation.run_round(federation.start(federation.objective.initial()), [0, 1])
    assert "teacher_passes" not in measured


def test_a_teacher_drops_what_the_model_drops_and_leaves_buffers_as_they_are():
    """So that at equal parameters both have the same scores."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), Dropout(0.5), nn.Linear(8, 2))
        objective, x = Objective(module, buffer_mode="average"), torch.randn(6, 3)
    w, seen = objective.initial(), {}

    def value(model, variables):
        seen["scores"] = model(x)
        return seen["scores"].sum()

    with objective.drawing(KeyedDraws(lambda: 7, torch.device("cpu"))):
        before = objective.current_buffers()
        teacher = objective.teacher_scores(w, x)
        assert torch.equal(objective.current_buffers(), before)
        objective.gradients(w, value, {})
    torch.testing.assert_close(teacher, seen["scores"].detach())
    assert not teacher.requires_grad


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (WithoutTeacher, "reads the teacher 'first', which no component broadcasts (broadcast: nothing)"),
        (OfAnotherSize, "the teacher 'first' has the shape [5], but the parameters of the model have the shape [43]"),
    ],
)
def test_a_teacher_that_is_not_there_is_one_line(loss, message):
    federation = Problem(1).federation(own(loss=loss), {})
    with pytest.raises(UserError) as caught:
        federation.run_round(federation.start(federation.objective.initial()), [0, 1])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# Gradients before the first step, noise, participants.


@pytest.mark.parametrize("backend", BACKENDS, ids=NAMES)
def test_what_a_client_gets(backend):
    """The gradients at the global model on the first and the fourth mini-batch, zero without one; two draws; M."""
    problem = Problem(1)
    federation = problem.federation(own(correction=Records), {})
    federation.batch_sampler = EpochBatches(federation.batch_sampler.split, 1, 3, seed=3)
    state = federation.start(federation.objective.initial())
    after, measured = federation.run_round(state, [0, 1, 3], backend=backend())
    samples = 0
    for work in federation.work(state, [0, 1, 3]):
        got = after.clients[work.client]
        for name, step in (("first", 0), ("fourth", 3)):
            expected = torch.zeros_like(state.w)
            if step < len(work.batches):
                expected = federation.objective.gradient(state.w, *federation.local.data.batch(work.batches[step]))[0]
                samples += len(work.batches[step])
            torch.testing.assert_close(got[name], expected)
        for name in ("a", "b"):
            torch.testing.assert_close(got[name], work.normal(name, len(state.w), state.w.dtype))
        assert bool((got["M"] == 3).all())
        [alone] = federation.train_clients(state, [work.client], participants=3).values()
        torch.testing.assert_close(alone.state, got)
    assert len(federation.batch_sampler(0, 0)) < 4 <= len(federation.batch_sampler(3, 0))
    own_samples = sum(len(problem.data()[i][1]) for i in (0, 1, 3))
    assert measured["gradients"] == pytest.approx(1 + samples / own_samples)


@pytest.mark.parametrize("backend", [Loop, Cohort])
def test_mini_batch_gradients_are_possible_in_start_only(backend):
    federation = in_epochs(own(correction=Late))
    with pytest.raises(UserError, match="possible in start only"):
        federation.run_round(federation.start(federation.objective.initial()), [0, 1], backend=backend())


def test_a_cohort_needs_the_declaration():
    federation = in_epochs(own(correction=Undeclared))
    with pytest.raises(CannotBatchError, match="must declare takes_mini_batch_gradient = True"):
        federation.run_round(federation.start(federation.objective.initial()), [0, 1], backend=Cohort())
