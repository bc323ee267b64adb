"""Clients that do less work: how much, that it is the same for all methods, and what methods and costs make of it."""

import numpy as np
import pytest
import torch

from fedflat.analysis.measures.cost import images_of_steps
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.backends.parallel import Parallel
from fedflat.bench.engine.batches import LocalSteps
from fedflat.bench.engine.method_costs import example
from fedflat.bench.engine.work import WORKS, parse_work
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.training.run_setup import RunSetup
from tests.bench.engine.rounds_of_backends import TOLERANCE, close
from tests.problems import Problem, train
from tests.tape import Tapes

CPU = torch.device("cpu")
UNIFORM = {"name": "uniform"}
STRAGGLERS = {"name": "stragglers", "share": 0.5}
EXAMPLES = {"full": {}, "uniform": {"least": 2}, "stragglers": {"share": 0.5, "least": 2}, "by_client": {"least": 2}}


def amounts(options: dict, rounds: int = 60, clients: int = 50) -> np.ndarray:
    """Rounds × clients."""
    work = parse_work(options)
    return np.array([[work.amount(5, 7, t, i) for i in range(clients)] for t in range(rounds)])


@pytest.mark.parametrize("name", WORKS)
def test_amounts_are_within_their_bounds_and_have_their_mean(name):
    options = {"name": name, **EXAMPLES[name]}
    drawn = amounts(options, rounds=1, clients=3000) if name == "by_client" else amounts(options)
    assert drawn.max() == 5
    assert drawn.min() >= (5 if name == "full" else 2)
    assert drawn.mean() == pytest.approx(parse_work(options).mean(5), abs=0.1)


def test_half_of_the_clients_are_stragglers_and_slow_clients_stay_slow():
    late = amounts({"name": "stragglers", "share": 0.5, "least": 1}) < 5
    assert late.mean() == pytest.approx(0.5 * 4 / 5, abs=0.03)  # a straggler may draw all of its work
    by_client = amounts({"name": "by_client"})
    assert (by_client == by_client[0]).all()
    assert len(set(by_client[0])) == 5


def test_a_clients_batches_are_the_first_ones_of_all_its_work():
    split = [np.arange(0, 9), np.arange(9, 13)]
    for amount in ({"steps": 6}, {"epochs": 3}):
        for batch_size in (None, 4):
            whole = LocalSteps(**amount, batch_size=batch_size)
            less = LocalSteps(**amount, batch_size=batch_size, work=parse_work(UNIFORM))
            all_batches, batches = whole.sampler(split, 3), less.sampler(split, 3)
            for client, t in ((0, 0), (1, 0), (0, 1), (0, 2)):
                done = less.in_round(3, t, client)
                own, full = batches(client, t), all_batches(client, t)
                assert len(own) == done.count(len(split[client])) <= len(full)
                assert all(map(torch.equal, own, full))
                assert sum(map(len, own)) == done.images(len(split[client]))
            assert all(map(torch.equal, batches.one_pass(0), all_batches.one_pass(0)))


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedmoswa", "fedwmsam", "feddc", "fedcm", "fedscam"])
def test_all_back_ends_agree(method):
    problem = Problem(1)
    federation = problem.federation(method, example(CATALOG[method]))
    split, local = federation.batch_sampler.split, LocalSteps(steps=5, batch_size=3, work=parse_work(UNIFORM))
    federation.batch_sampler = local.sampler(split, 1)
    backends = [Loop(), Cohort(), Graph(Tapes()), Parallel()]
    states = [federation.start(federation.objective.initial())] * len(backends)
    counted = []
    for t, active in enumerate(problem.some()):
        ends = [federation.run_round(state, active, backend=one) for state, one in zip(states, backends, strict=True)]
        states = [state for state, _ in ends]
        for _, measured in ends:
            assert measured == pytest.approx(ends[0][1], rel=TOLERANCE, abs=TOLERANCE)
        counted.append(np.mean([local.in_round(1, t, i).steps for i in active]))
        assert ends[0][1]["local_steps"] == counted[-1]
    assert len(set(counted)) > 1
    for state in states[1:]:
        close(states[0], state)


@pytest.mark.parametrize("method", ["scaffold", "feddc", "fedwmsam"])
def test_a_client_divides_by_its_own_sum_of_rates(method):
    """After the first round, c_i is the client's mean gradient, and c is the mean of all c_i in every round."""
    problem = Problem(3)
    federation = problem.federation(method, example(CATALOG[method]), lr_poly={"horizon": 2})
    split = federation.batch_sampler.split
    federation.batch_sampler = LocalSteps(steps=6, batch_size=3, work=parse_work(UNIFORM)).sampler(split, 1)
    state = federation.start(federation.objective.initial())
    results = federation.train_clients(state, range(problem.clients))
    numbers = {result.steps for result in results.values()}
    assert len(numbers) > 1
    for result in results.values():
        rates = sum(0.1 * (1 - k / (2 * result.steps)) ** 0.9 for k in range(result.steps))
        torch.testing.assert_close(result.state["c_i"], -(result.w - state.w) / rates)
    for active in problem.some():
        state, _ = federation.run_round(state, active)
        total = torch.stack([vectors["c_i"] for vectors in state.clients.values()]).sum(0)
        torch.testing.assert_close(state.server["c"], total / problem.clients)


def test_the_servers_direction_divides_by_each_clients_own_steps():
    """As FedNova's: with one gradient per client, the number of steps does not change D."""
    federation = Problem(1).federation("fedcm", {"alpha": 0.5})
    split = federation.batch_sampler.split
    federation.batch_sampler = LocalSteps(steps=6, batch_size=3, work=parse_work(UNIFORM)).sampler(split, 2)
    state = federation.start(federation.objective.initial())
    results = federation.train_clients(state, [0, 3])
    after, _ = federation.run_round(state, [0, 3])
    steps = {i: result.steps for i, result in results.items()}
    assert steps[0] != steps[3]
    mean = -sum((result.w - state.w) / (result.steps * 0.1) for result in results.values()) / 2
    torch.testing.assert_close(after.server["D"], mean)


def test_runs_count_their_work(tmp_path):
    """The images of a run are those that were trained, by clients of unequal size; two methods have the same work."""
    small = {"training.rounds": 2, "training.local_epochs": 3, "training.work": STRAGGLERS, "grid.seeds": [5]}
    unequal = {"grid.partition": [{"name": "dirichlet_by_class", "alpha": 0.6, "clients": 20, "least": 1}]}
    experiment = load_experiment("quick", {**small, **unequal, "engine.backend": "loop"})
    cells = [path for path in experiment.paths() if "/4-of-20/" in path]
    configs = [experiment.cell(path).runs[0] for path in cells if path.endswith(("/fedavg", "/scaffold"))]
    runs = [train(config, tmp_path / config.method.name, CPU) for config in configs]
    assert runs[0].metrics()["local_steps"].tolist() == runs[1].metrics()["local_steps"].tolist()
    setup = RunSetup.build(configs[0], CPU)
    # As before availability existed, so that stored choices of the engine are found.
    participation = setup.calibration_key()["participation"]
    assert participation == {"sampling": "fixed", "active": 4, "probability": None, "hash": None}
    state = setup.federation.start(setup.objective.initial())
    trained = {}
    for state.round in range(2):
        trained[state.round + 1] = sum(len(index) for work in setup.work(state) for index in work.batches)
    assert len(set(trained.values())) == 2
    assert images_of_steps(runs[1], trained) == trained
    assert configs[0].training.local.mean_share() == pytest.approx((0.5 * 2 + 0.5 * 3) / 3)


def test_simulations_of_all_methods_have_the_same_work():
    options = {"local_steps": 6, "batch_size": 2, "work": UNIFORM, "engine": "loop"}
    steps = [
        Problem(0).run(method, values, **options).history["local_steps"].tolist()
        for method, values in (("fedavg", {}), ("fedsam", {"rho": 0.1}))
    ]
    assert steps[0] == steps[1]
    assert len(set(steps[0])) > 1


@pytest.mark.parametrize(
    ("work", "message"),
    [
        ({"name": "straggler"}, "unknown work 'straggler'; did you mean 'stragglers'"),
        ({"name": "stragglers"}, "share is missing"),
        ({"name": "full", "least": 9}, "unknown key of full 'least'"),
        ({"name": "stragglers", "share": 1.5}, "share = 1.5: Input should be less than or equal to 1"),
        ({"name": "uniform", "least": 0}, "least = 0: Input should be greater than or equal to 1"),
        ({"name": "uniform", "least": 9}, r"work: least = 9 \(allowed: at most the local steps or epochs, 3\)"),
        ("uniform", r"work = 'uniform' \(allowed: a mapping of names to plain values, such as"),
    ],
)
def test_wrong_work_is_one_line(work, message):
    with pytest.raises(UserError, match=message) as error:
        Problem(0).run("fedavg", work=work)
    assert "\n" not in str(error.value)
