"""Dropout with keyed draws: right chances, one mask per step, and the same bits after a restart and in any order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from torch import Tensor, nn

from fedflat.bench.engine.objective import Objective
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import Perturbation
from fedflat.bench.methods.recipe import Components, Recipe
from fedflat.bench.models.dropout import Dropout, KeyedDraws
from fedflat.bench.numerics.streams import torch_seed
from fedflat.bench.training.run_setup import RunSetup
from tests.bench.training.small_runs import CPU, check_resume, config
from tests.problems import Problem, distance, one_round

EMNIST = {"model": "cnn_emnist"}


def trained(rate: float) -> Dropout:
    part = Dropout(rate).train()
    part.draws = KeyedDraws(lambda: 0, CPU)
    part.draws.restart()
    return part


@settings(max_examples=20, deadline=None)
@given(rate=st.floats(0.05, 0.95))
def test_masks_keep_the_mean_and_drop_the_rate(rate):
    x = torch.ones(100, 200, dtype=torch.float64)
    dropped = trained(rate)(x)
    assert binomtest(int((dropped == 0).sum()), x.numel(), rate).pvalue > 1e-4
    remaining = dropped[dropped != 0]
    assert torch.allclose(remaining, torch.full_like(remaining, 1 / (1 - rate)))


def test_entries_are_dropped_one_by_one():
    """Neighbours are independent: rows, columns and whole samples are not dropped together."""
    dropped = (trained(0.5)(torch.ones(200, 200)) == 0).double()
    for axis in (0, 1):
        a, b = dropped.narrow(axis, 0, 199).flatten(), dropped.narrow(axis, 1, 199).flatten()
        assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 0.02


def test_masks_are_the_same_in_every_number_format():
    x = torch.ones(30, 40)
    assert torch.equal(trained(0.3)(x) == 0, trained(0.3)(x.double()) == 0)


def test_nothing_is_dropped_in_evaluation_at_rate_0_and_without_draws():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(trained(0.5)(x), x)
    assert trained(0.5).eval()(x) is x
    assert trained(0)(x) is x
    assert Dropout(0.5).train()(x) is x


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5, float("nan")])
def test_rates_out_of_range_are_reported(rate):
    with pytest.raises(UserError, match=rf"dropout rate {rate} is not allowed \(allowed: 0 to below 1\)"):
        Dropout(rate)


def test_torchs_own_dropout_is_refused_with_a_hint():
    model = nn.Sequential(Problem(0).model(), nn.Dropout(0.5))
    with pytest.raises(UserError, match=r"cannot be repeated; use fedflat\.models\.Dropout"):
        Objective(model)


# --- In the objective


class Dropping(nn.Module):
    """A network with two dropout layers, which remembers its masked inputs."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.body = Problem(0).model()
        self.first, self.second = Dropout(rate), Dropout(rate)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x + 10)
        hidden = self.second(self.body[:2](x) + 10)
        self.seen.append(torch.cat([(x == 0).flatten(), (hidden == 0).flatten()]))
        return self.body[2](hidden)


def test_each_gradient_draws_the_masks_of_its_key():
    model, (x, y) = Dropping(0.5), Problem(0).data()[1]
    objective = Objective(model)
    w = objective.initial()
    with objective.drawing(KeyedDraws(lambda: 7, CPU)):
        first, again = (objective.gradient(w, x, y)[0] for _ in range(2))
    with objective.drawing(KeyedDraws(lambda: 8, CPU)):
        other = objective.gradient(w, x, y)[0]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    inputs, hidden = model.seen[0][: x.numel()], model.seen[0][x.numel() :]
    assert not torch.equal(inputs, hidden[: len(inputs)]), "the layers draw one after the other"


def test_outside_of_keyed_draws_the_loss_is_a_function():
    """Analyses of a finished run look at the network without dropout, as its evaluation does."""
    objective, (x, y) = Objective(Dropping(0.5)), Problem(0).data()[1]
    w = objective.initial()
    with pytest.raises(RuntimeError, match="stopped"), objective.drawing(KeyedDraws(lambda: 7, CPU)):
        raise RuntimeError("stopped")
    assert float(objective.gradient(w, x, y)[1]) == pytest.approx(objective.loss(w, [(x, y)]))
    plain = Objective(Dropping(0))
    assert torch.equal(plain.gradient(w, x, y)[0], objective.gradient(w, x, y)[0])


# --- In training


class Twice(Perturbation):
    """The gradient at w itself, taken twice."""

    name = "twice"

    def delta(self, w, gradient, client):
        return 0 * gradient(w)


TWICE = Recipe("twice", "Twice", "a test", Components(Twice))


def test_all_passes_of_a_step_share_the_mask_and_no_two_steps_do():
    seen = Problem(0).run(TWICE, model=Dropping(0.5), participants=[[0, 1], [0, 1]]).model.seen
    assert len(seen) == 2 * 2 * 2 * 3, "passes, rounds, clients, steps"
    for first, second in zip(seen[::2], seen[1::2], strict=True):
        assert torch.equal(first, second)
    masks = [mask[:20].numpy().tobytes() for mask in seen[::2]]  # client 0 has five samples of four numbers
    assert len(set(masks)) == len(masks)


def test_sam_without_radius_is_fedavg_with_dropout_too():
    runs = [Problem(0).run(m, h, model=Dropping(0.5)) for m, h in (("fedavg", {}), ("fedsam", {"rho": 0}))]
    assert distance(*runs) == 0
    assert distance(runs[0], Problem(0).run("fedavg", model=Dropping(0))) > 1e-3


def test_masks_are_keyed_by_seed_round_client_and_step():
    """The first step of client 1 in round 1, drawn by hand."""
    problem = Problem(0)
    seen = problem.run("fedavg", model=Dropping(0.5), participants=[[0], [1]], seed=5).model.seen
    x = problem.data()[1][0]
    generator = torch.Generator().manual_seed(torch_seed(5, "dropout", 1, 1, 0))
    expected = torch.rand(x.shape, generator=generator) >= 0.5
    assert torch.equal(seen[3][: x.numel()], expected.flatten())


def test_full_gradients_have_masks_of_their_own():
    """MimeLite's pass over all data is step −1, whose mask is neither that of the first step nor dropped."""
    run = Problem(0).run("mimelite", {"alpha": 0.1}, model=Dropping(0.5), participants=[[0]], local_steps=1)
    full, *_, step = run.model.seen
    assert full.any()
    assert not torch.equal(full, step)


def test_the_order_and_the_company_of_clients_change_nothing():
    problem = Problem(0)
    federation = problem.federation("fedavg", {}, model=Dropping(0.5))
    start = federation.start(federation.objective.initial())
    together = federation.train_clients(start, [2, 0, 1])
    alone = {client: federation.train_clients(start, [client])[client] for client in (1, 2, 0)}
    assert all(torch.equal(together[client].w, alone[client].w) for client in alone)


def test_simulate_repeats_itself_and_gives_the_model_back():
    model = Dropping(0.5)
    before = [p.detach().clone() for p in model.parameters()]
    runs = [Problem(0).run("fedavg", model=model, seed=seed) for seed in (1, 1, 2)]
    assert distance(runs[0], runs[1]) == 0
    assert distance(runs[0], runs[2]) > 1e-3
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert model.first.draws is None


@pytest.mark.parametrize("method", ["fedsam", "mimelite"])
def test_resume_is_bitwise(method, tmp_path, monkeypatch):
    check_resume(method, CPU, tmp_path, monkeypatch, **EMNIST)


def test_evaluation_has_no_dropout():
    """Rates change what is trained, not what a model scores."""
    low, high = (
        RunSetup.build(config("fedavg", model={"name": "cnn_emnist", "dropout_hidden": rate}), CPU) for rate in (0, 0.9)
    )
    w = low.objective.initial()
    assert torch.equal(w, high.objective.initial())
    scores = [b.objective.evaluate(w, b.test.batches(500)) for b in (low, high)]
    assert scores[0] == scores[1]
    after = [one_round(b, b.federation.start(w))[0].w for b in (low, high)]
    assert not torch.equal(*after)
