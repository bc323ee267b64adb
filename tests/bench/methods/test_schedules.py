"""Schedules over rounds: their factors, which values may follow one, and that all ways of training agree on them."""

import json
import math

import pytest
import torch

import fedflat
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.backends.parallel import Parallel
from fedflat.bench.engine.method_costs import example
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.sections.training import Training
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.compose import compose
from fedflat.bench.methods.marks import Scheduled, has_mark
from fedflat.bench.methods.perturbations.none import NoPerturbation
from fedflat.bench.methods.perturbations.sam import SAM
from fedflat.bench.methods.recipe import Components, Recipe
from fedflat.bench.methods.schedules import SCHEDULES, parse_schedule
from fedflat.bench.training.run_setup import RunSetup
from tests.bench.engine.rounds_of_backends import TOLERANCE, close
from tests.problems import Problem, distance, train
from tests.tape import Tapes
from tests.tiers import METHODS

CPU = torch.device("cpu")
T = 12
COSINE = {"name": "cosine", "end": 0.1}
FALL = {"name": "cosine"}
RISE = {"name": "warmup", "rounds": 4, "start": 0.2, "then": COSINE}
EXAMPLES = {
    "constant": {},
    "exponential": {"decay": 0.9},
    "step": {"after": [3, 8], "by": 0.5},
    "cosine": {"end": 0.1},
    "warmup": {"rounds": 4, "start": 0.2, "then": COSINE},
}


def factors(options: dict, rounds: int = T) -> list[float]:
    schedule = parse_schedule(options, "test")
    return [schedule.factor(t, rounds) for t in range(rounds)]


def of_torch(name: str) -> list[float]:
    """The rates of torch's scheduler, which is stepped once per round, from the rate 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedulers, rates = torch.optim.lr_scheduler, []

    def cosine(rounds: int) -> schedulers.LRScheduler:
        return schedulers.CosineAnnealingLR(optimizer, rounds, eta_min=0.1)

    scheduler = {
        "constant": lambda: schedulers.ConstantLR(optimizer, 1.0),
        "exponential": lambda: schedulers.ExponentialLR(optimizer, 0.9),
        "step": lambda: schedulers.MultiStepLR(optimizer, [3, 8], 0.5),
        "cosine": lambda: cosine(T),
        "warmup": lambda: schedulers.SequentialLR(
            optimizer, [schedulers.LinearLR(optimizer, 0.2, 1.0, 4), cosine(T - 4)], [4]
        ),
    }[name]()
    for _ in range(T):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_schedule_is_torchs(name):
    assert factors({"name": name, **EXAMPLES[name]}) == pytest.approx(of_torch(name), abs=1e-12)


def test_steps_every_few_rounds_and_a_cosine_over_some():
    assert factors({"name": "step", "every": 5}) == pytest.approx([1] * 5 + [0.1] * 5 + [0.01] * 2)
    assert factors({"name": "cosine", "rounds": 6})[:6] == pytest.approx(factors({"name": "cosine"}, 6))
    assert factors({"name": "cosine", "rounds": 6, "end": 0.5})[6:] == [0.5] * 6
    assert factors({"name": "warmup", "rounds": 20, "start": 0}) == pytest.approx([t / 20 for t in range(T)])


def test_an_exponential_schedule_has_the_bits_of_the_older_key():
    problem = Problem(0)
    scheduled = problem.run("fedsam", {"rho": 0.1}, lr_schedule={"name": "exponential", "decay": 0.9})
    assert distance(scheduled, problem.run("fedsam", {"rho": 0.1}, lr_decay=0.9)) == 0


def test_the_constant_schedule_is_none():
    """In the identity, too: it does not matter whether a file names it."""
    plain = Training(rounds=2, local_steps=1, batch_size=1, lr=0.1)
    constant = {"name": "constant"}
    assert Training(**plain.model_dump() | {"lr_schedule": constant, "server_lr_schedule": constant}) == plain
    assert CATALOG["fedsam"].complete({"rho": 0.1, "schedules": {"rho": constant}}) == {"rho": 0.1}
    with pytest.raises(UserError, match=r"lr_decay = 0.9 and lr_schedule exclude each other"):
        Training.parse({**plain.model_dump(), "lr_decay": 0.9, "lr_schedule": constant})


SCHEDULED = {
    name: {radius: RISE for radius, info in entry.hyperparameters.items() if has_mark(info, Scheduled)}
    for name, entry in CATALOG.items()
}
WITH_RADIUS = [one for one in METHODS if SCHEDULED[one if isinstance(one, str) else one.values[0]]]


@pytest.mark.parametrize("method", WITH_RADIUS)
def test_all_back_ends_follow_a_schedule(method):
    """`Graph` replays recorded operations, so that it would keep a radius that it takes for a constant."""
    problem, values = Problem(1, rounds=5), {**example(CATALOG[method]), "schedules": SCHEDULED[method]}
    federation = problem.federation(method, values, lr_schedule=RISE)
    backends = [Loop(), Cohort(), Graph(Tapes()), Parallel()]
    states = [federation.start(federation.objective.initial())] * len(backends)
    for t, active in enumerate(problem.some()):
        ends = [federation.run_round(state, active, backend=one) for state, one in zip(states, backends, strict=True)]
        states = [state for state, _ in ends]
        for _, measured in ends:
            assert measured == pytest.approx(ends[0][1], rel=TOLERANCE, abs=TOLERANCE)
            assert measured["lr"] == pytest.approx(0.1 * factors(RISE, 5)[t])
            assert measured["rho"] == pytest.approx(values["rho"] * factors(RISE, 5)[t])
    for state in states[1:]:
        close(states[0], state)


@pytest.mark.parametrize("method", WITH_RADIUS)
def test_each_round_has_the_radii_and_the_rates_of_its_own(method):
    """A run of one round each, from the state before, with constant values, which the server's hooks use, too."""
    problem, values = Problem(2), example(CATALOG[method])
    has_server_rate = not CATALOG[method].build(values).server.needs_unit_server_lr()
    schedules = {"lr_schedule": COSINE} | ({"server_lr_schedule": RISE} if has_server_rate else {})
    federation = problem.federation(method, {**values, "schedules": SCHEDULED[method]}, **schedules)
    state = federation.start(federation.objective.initial())
    for t, active in enumerate(problem.some()):
        rise, cosine = factors(RISE, 4)[t], factors(COSINE, 4)[t]
        radii = {name: values[name] * rise for name in SCHEDULED[method]}
        rates = {"lr": 0.1 * cosine} | ({"server_lr": rise} if has_server_rate else {})
        expected, _ = problem.federation(method, {**values, **radii}, **rates).run_round(state, active)
        state, measured = federation.run_round(state, active)
        assert torch.equal(expected.w, state.w)
        assert expected.server.keys() == state.server.keys()
        assert all(torch.equal(v, state.server[name]) for name, v in expected.server.items())
        assert {name: measured[name] for name in radii} == radii
        assert not has_server_rate or measured["server_lr"] == rise


def test_a_round_after_the_last_one_has_its_rates():
    """Analyses compute it from the last state, also where the factor would be 0."""
    federation = Problem(2).federation("fedsam", {"rho": 0.3, "schedules": {"rho": COSINE}}, lr_schedule=FALL)
    last = 0.1 * factors(FALL, 4)[-1]
    assert [federation.learning_rate(t) for t in (3, 4, 9)] == [last] * 3
    radii = [federation.method.round_values(t, 4)["perturbation"]["rho"] for t in (3, 4)]
    assert radii == [0.3 * factors(COSINE, 4)[-1]] * 2


FREE = {"lr_schedule": {"name": "warmup", "rounds": 2, "then": {"name": "cosine"}}}
BY_METHOD = {
    "fedavg": ({}, {"lr_schedule": {"name": "cosine"}}),
    "fedsam": ({"rho": 0.1, "schedules": {"rho": {"name": "step", "every": 1, "by": 0.5}}}, FREE),
    "scaffold": ({}, {"lr_schedule": {"name": "step", "after": [1, 2]}, "server_lr_schedule": {"name": "cosine"}}),
}


@pytest.mark.parametrize("method", BY_METHOD)
def test_a_file_and_simulate_give_the_same_bits(method, tmp_path):
    """Other methods of the file keep its `lr_decay`, which a schedule replaces."""
    values, training = BY_METHOD[method]
    file = tmp_path / "own.yaml"
    entry = {"hyperparameters": values, "training": training}
    lines = {"name": "own", "extends": "quick", "methods": {method: entry, "fedprox": {"hyperparameters": {"lam": 1}}}}
    small = {"training.rounds": 3, "grid.seeds": [5], "grid.participation": [{"active": 4}]}
    file.write_text(json.dumps({**lines, "engine": {"backend": "loop", "layout": "contiguous"}}), encoding="utf-8")
    experiment = load_experiment(str(file), {**small, "training.local_epochs": 1})
    config = experiment.cell(f"digits/dirichlet-0.1/4-of-20/{method}").runs[0]
    assert experiment.cell("digits/dirichlet-0.1/4-of-20/fedprox").runs[0].training.lr_decay == 0.998
    assert config.training.lr_decay == 1
    run = train(config, tmp_path / "run", CPU)
    setup = RunSetup.build(config, CPU)
    simulated = fedflat.simulate(
        method,
        setup.objective.module,
        setup.train.batch(torch.arange(len(setup.train))),
        partition={"name": "dirichlet", "alpha": 0.1, "clients": 20},
        participation=4,
        rounds=3,
        local_epochs=1,
        batch_size=16,
        lr=0.1,
        weight_decay=0.001,
        clip=10,
        seed=5,
        aggregation=config.training.aggregation,
        hyperparameters=values,
        engine="loop",
        **training,
    )
    assert torch.equal(simulated.global_params[-1], run.final(CPU).w)
    columns = ["lr", *(name for name in ("rho", "server_lr") if name in simulated.history)]
    assert {*columns} == {"lr"} | ({"rho"} if method == "fedsam" else set()) | (
        {"server_lr"} if method == "scaffold" else set()
    )
    for name in columns:
        assert simulated.history[name].tolist() == run.metrics()[name].tolist()


@pytest.mark.parametrize(
    ("hyperparameters", "options", "message"),
    [
        ({}, {"lr_schedule": {"name": "cosin"}}, "did you mean 'cosine'"),
        (
            {},
            {"lr_schedule": {"name": "cosine", "last": 1}},
            r"unknown key of cosine 'last' \(allowed: end, name, rounds",
        ),
        (
            {},
            {"lr_schedule": {"name": "cosine", "end": -0.5}},
            "end = -0.5: Input should be greater than or equal to 0",
        ),
        ({}, {"lr_schedule": {"name": "step"}}, "a step schedule needs after .* or every"),
        ({}, {"lr_schedule": {"name": "step", "after": [3, 2]}}, r"after = \[3, 2\] \(allowed: growing numbers"),
        (
            {},
            {"lr_schedule": {"name": "warmup", "rounds": 0}},
            "rounds = 0: Input should be greater than or equal to 1",
        ),
        ({}, {"lr_schedule": COSINE, "lr_decay": 0.9}, "lr_decay = 0.9 and lr_schedule exclude each other"),
        ({}, {"lr_schedule": {"name": "cosine", "rounds": 2}}, "lr_schedule: the rate is 0 in round 3 of 4"),
        ({}, {"server_lr_schedule": {"name": "warmup", "rounds": 2, "start": 0}}, "the rate is 0 in round 1 of 4"),
        ({}, {"lr_schedule": {"name": "step", "every": 1, "by": 1e200}}, "the rate is inf in round"),
        ({"schedules": {"rho": {"name": "cosine", "end": -1}}}, {}, r"schedules.rho: end = -1"),
        ({"schedules": {"rho": 3}}, {}, r"schedules.rho = 3 \(allowed: a mapping such as"),
        ({"schedules": {"rho": {"name": "line"}}}, {}, "unknown schedule in fedsam: schedules.rho 'line'"),
        ({"schedules": {"alpha": COSINE}}, {}, "unknown hyper-parameter in schedules of fedsam 'alpha'"),
        ({"schedules": [1]}, {}, r"fedsam: schedules = \[1\] \(allowed: schedules by hyper-parameter\)"),
    ],
)
def test_a_wrong_schedule_is_one_line(hyperparameters, options, message):
    with pytest.raises(UserError, match=message) as error:
        Problem(0).run("fedsam", {"rho": 0.1, **hyperparameters}, **options)
    assert "\n" not in str(error.value)


def test_values_that_cannot_change_and_rates_that_do_not_exist():
    with pytest.raises(UserError, match=r"mofedsam: alpha cannot follow a schedule \(allowed: rho; rates have"):
        CATALOG["mofedsam"].build({"rho": 0.1, "alpha": 0.3, "schedules": {"alpha": COSINE}})
    with pytest.raises(UserError, match="feddyn has no server learning rate, so server_lr_schedule must be null"):
        Problem(0).run("feddyn", {"lam": 0.1}, server_lr_schedule=COSINE)


def test_a_schedule_multiplies_a_warm_up_of_the_method():
    """Each value of a round must be in its own range; others of the component are not compared with it."""
    values = {"rho": 0.1, "rho_g": 0.0, "lam": 0.1, "rho_0": 0.1, "warmup": 2, "server_radius": "released"}
    method = CATALOG["fedgloss"].build({**values, "schedules": {"rho": FALL}})
    method.check_changes(10)
    radii = [method.round_values(t, 10)["server"]["rho_g"] for t in range(4)]
    assert radii == [0.05, 0.05, 0.05, 0]
    huge = {"name": "step", "after": [2], "by": 1e308}
    grows = CATALOG["fedgloss"].build({**values, "warmup": 2, "rho": 1e3, "schedules": {"rho_g": huge}})
    with pytest.raises(
        UserError, match="fedgloss: rho_g = inf in round 3 of 10, by the schedule step: Input should be"
    ):
        grows.check_changes(10)


class ShrinkingRadius(SAM):
    """A radius that the component itself changes, below zero from the third round on."""

    name = "shrinking radius"

    def round_values(self, t):
        return {"rho": self.rho * (1 - t)}


def test_a_radius_that_becomes_negative_by_the_components_own_rule():
    own = Recipe("own", "Own", "a test", Components(ShrinkingRadius))
    Problem(0, rounds=2).run(own, {"rho": 0.1})
    with pytest.raises(UserError, match=r"^own: rho = -0\.1 in round 3 of 3, by round_values: Input should be greater"):
        Problem(0, rounds=3).run(own, {"rho": 0.1})


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("roh", "unknown hyper-parameter in round_values of changing 'roh'; did you mean 'rho'"),
        ("active", "own: the hyper-parameter active changes from round to round, but this is already a column"),
        ("available", "own: the hyper-parameter available changes from round to round, but this is already a column"),
    ],
)
def test_a_component_changes_its_own_hyperparameters_only(named, message):
    class Wrong(NoPerturbation):
        name = "changing"
        rho: float = 0.0
        active: float = 0.0
        available: float = 0.0

        def round_values(self, t):
            return {named: 0.5}

    with pytest.raises(UserError, match=message) as error:
        Problem(0).run(Recipe("own", "Own", "a test", Components(perturbation=Wrong)))
    assert "\n" not in str(error.value)


def test_two_components_with_one_name_have_a_column_each():
    recipe = compose({"perturbation": "gf", "correction": "feddyn", "server": "fedgloss"})
    radii = {"perturbation.rho_g": 0.1, "server.rho_g": 0.4}
    values = {**example(recipe), "rho": 0.1, "schedules": {"rho_g": RISE}} | radii
    values.pop("rho_g")
    history = Problem(0).run(recipe, values).history
    for name, radius in radii.items():
        assert history[name].tolist() == pytest.approx([radius * factor for factor in factors(RISE, 4)])
    assert "rho_g" not in history


def test_a_schedule_cannot_lead_out_of_the_range():
    """Reported before the first round."""
    grows = {"name": "step", "every": 1, "by": 1e200}
    with pytest.raises(UserError, match=r"fedsam: rho = inf in round 3 of 4, by the schedule step: Input should be"):
        Problem(0).run("fedsam", {"rho": 0.1, "schedules": {"rho": grows}})
    assert math.isfinite(Problem(0).run("fedsam", {"rho": 0.1}).history["local_loss"].iloc[-1])
