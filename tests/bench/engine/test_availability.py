"""Which clients can take part in a round: the kinds, how participants are drawn among them, and wrong files."""

import math

import numpy as np
import pytest
import torch

import fedflat
from fedflat.bench.engine.availability import AVAILABILITIES
from fedflat.bench.engine.participation import Participation, active_clients, available_clients, scheduled_rounds
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_setup import RunSetup
from tests.problems import Problem, train

N, T = 30, 40
PERIODIC = {"name": "periodic", "period": 8, "available": 2}
BERNOULLI = {"name": "bernoulli", "probability": 0.3}
TRACE = "round,client\n0,3\n0,1\n1,0\n2,4\n2,0\n2,2\n"


def rule(availability: dict | None, **fields) -> Participation:
    return Participation.parse({**(fields or {"active": 4}), "availability": availability})


def present(availability: dict, seed: int = 0) -> np.ndarray:
    """Rounds × clients: who is available."""
    found = np.zeros((T, N), dtype=bool)
    for t in range(T):
        found[t, available_clients(rule(availability), N, seed, t)] = True
    return found


def test_every_kind_is_tested():
    assert set(AVAILABILITIES) == {"always", "bernoulli", "periodic", "from_file"}


def test_always_is_none_of_the_others():
    assert rule({"name": "always"}) == rule(None)
    assert available_clients(rule(None), 5, 0, 3) == [0, 1, 2, 3, 4]


def test_by_chance():
    found = present(BERNOULLI)
    assert found.mean() == pytest.approx(0.3, abs=0.03)
    assert not (found == present(BERNOULLI, seed=1)).all()


def test_a_client_is_available_in_consecutive_rounds_of_each_period():
    found = present(PERIODIC)
    assert (found[8:] == found[:-8]).all()
    assert (found[:8].sum(0) == 2).all()
    cyclic = np.concatenate([found[:8], found[:1]])
    assert ((cyclic[1:] & cyclic[:-1]).sum(0) == 1).all()
    assert len({tuple(row) for row in found[:8]}) == 8  # clients begin at different times


@pytest.mark.parametrize("availability", [BERNOULLI, PERIODIC])
@pytest.mark.parametrize("fields", [{"active": 4}, {"sampling": "bernoulli", "probability": 0.5}, {"sampling": "full"}])
def test_participants_are_drawn_among_available_clients(availability, fields):
    participation = rule(availability, **fields)
    for t in range(T):
        available = available_clients(participation, N, 3, t)
        active = active_clients(participation, N, 3, t)
        assert active == sorted(set(active))
        assert set(active) <= set(available)
        if "active" in fields:
            assert len(active) == min(4, len(available))
        if fields.get("sampling") == "full":
            assert active == available


def test_a_round_in_which_nobody_is_available_waits():
    rare = {"name": "periodic", "period": 50, "available": 1}
    participation = rule(rare, sampling="full")
    availability, seed = participation.availability, 2
    for t in range(5):
        later = next(u for u in range(t, t + 50) if len(availability.clients_at(3, seed, u)))
        assert active_clients(participation, 3, seed, t) == availability.clients_at(3, seed, later).tolist()
    assert any(len(availability.clients_at(3, seed, t)) == 0 for t in range(5))


def test_clients_that_are_always_available_are_drawn_as_before():
    certain = {"name": "bernoulli", "probability": 1}
    for t in range(5):
        assert active_clients(rule(certain), N, 1, t) == active_clients(rule(None), N, 1, t)


def trace(tmp_path, text=TRACE) -> dict:
    path = tmp_path / "my phones.csv"
    path.write_text(text, encoding="utf-8")
    return {"name": "from_file", "file": str(path)}


def test_a_file_is_followed(tmp_path):
    listed = rule(trace(tmp_path), sampling="full")
    listed.check(5, rounds=3)
    assert (scheduled_rounds(listed, 5), scheduled_rounds(rule(BERNOULLI), 5)) == (3, math.inf)
    assert [active_clients(listed, 5, 0, t) for t in range(3)] == [[1, 3], [0], [0, 2, 4]]
    assert listed.label(5) == "file-my-phones+all-of-5"
    assert rule(PERIODIC).mean_active(20) == 4
    assert rule(PERIODIC).label(20) == "periodic-2-in-8+4-of-20"
    assert listed.mean_active(5) == 2


def test_a_file_may_have_rounds_without_clients(tmp_path):
    """They wait, like those of other kinds."""
    gaps = rule(trace(tmp_path, "round,client\n1,3\n4,0\n4,1\n"), sampling="full")
    gaps.check(5, rounds=5)
    assert [active_clients(gaps, 5, 0, t) for t in range(5)] == [[3], [3], [0, 1], [0, 1], [0, 1]]
    assert gaps.mean_active(5) == 3 / 5


@pytest.mark.parametrize(
    ("fields", "sampling"),
    [
        ({"active": 10}, "bernoulli"),
        ({"active": 40}, "bernoulli"),
        ({"sampling": "bernoulli", "probability": 0.2}, "fixed"),
    ],
)
@pytest.mark.parametrize("availability", [{"name": "bernoulli", "probability": 0.3}, PERIODIC])
def test_another_sampling_has_the_same_mean_number_of_clients(availability, fields, sampling):
    """Counted in 200 rounds of 100 clients."""
    one = rule(availability, **fields)
    other = one.sampled(sampling, 100)
    assert other.sampling == sampling
    means = [np.mean([len(active_clients(each, 100, 0, t)) for t in range(200)]) for each in (one, other)]
    assert means[1] == pytest.approx(means[0], rel=0.1)
    assert other.mean_active(100) == pytest.approx(one.mean_active(100), abs=0.5)


def test_a_round_does_not_wait_for_ever():
    never = rule({"name": "bernoulli", "probability": 1e-9}, sampling="full")
    with pytest.raises(UserError, match=r"availability bernoulli-1e-09: none of 2 clients is available from round 4"):
        active_clients(never, 2, 0, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TRACE + "1,5\n", r"availability file '.*my phones.csv' has client 5 in round 1 \(allowed: 0 to 4\)"),
        ("round,client\n0,1\n1,1\n", "has 2 rounds, but training has 3"),
        ("round,user\n0,1\n", "lacks the column client"),
    ],
)
def test_a_wrong_file_is_reported_before_training(text, message, tmp_path):
    with pytest.raises(UserError, match=message) as error:
        rule(trace(tmp_path, text)).check(5, rounds=3)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"availability": {"name": "nightly"}}, "unknown availability 'nightly'"),
        ({"availability": {"name": "bernoulli", "probability": 0}}, "probability = 0: Input should be greater than 0"),
        ({"availability": {**PERIODIC, "available": 9}}, r"available = 9 \(allowed: at most the period, 8\)"),
        ({"availability": {"name": "from_file", "file": "nowhere.csv"}}, "cannot read the availability file"),
    ],
)
def test_wrong_availability_is_one_line(fields, message):
    with pytest.raises(UserError, match=message) as error:
        Problem(0).run("fedavg", participants=None, rounds=2, participation={"active": 2, **fields})
    assert "\n" not in str(error.value)


def test_a_schedule_needs_no_availability(tmp_path):
    schedule = tmp_path / "schedule.csv"
    schedule.write_text(TRACE, encoding="utf-8")
    with pytest.raises(UserError, match="a schedule already says who takes part in each round"):
        rule(BERNOULLI, sampling="schedule", file=schedule)


def test_a_run_and_simulate_have_the_same_participants_for_all_methods(tmp_path):
    """The metrics count who is available; the identity does not depend on the path of the file."""
    lines = "".join(f"{t},{i}\n" for t in range(2) for i in range(t, 20, 3))
    listed = trace(tmp_path, "round,client\n" + lines)
    other = {**listed, "file": str((tmp_path / "moved.csv").resolve())}
    (tmp_path / "moved.csv").write_bytes((tmp_path / "my phones.csv").read_bytes())
    grids = [{"grid.participation": [{"active": 4, "availability": one}]} for one in (listed, other)]
    small = {"training.rounds": 2, "training.local_epochs": 1, "grid.seeds": [5], "engine.backend": "loop"}
    experiments = [load_experiment("quick", {**small, **grid}) for grid in grids]
    configs = [
        experiment.cell(f"digits/dirichlet-0.1/{label}+4-of-20/fedavg").runs[0]
        for experiment, label in zip(experiments, ("file-my-phones", "file-moved"), strict=True)
    ]
    assert configs[0].identity == configs[1].identity
    run = train(configs[0], tmp_path / "run", torch.device("cpu"))
    assert run.metrics()["available"].tolist() == [7, 7]
    assert run.metrics()["active"].tolist() == [4, 4]
    setup = RunSetup.build(configs[0], torch.device("cpu"))
    data = setup.train.batch(torch.arange(len(setup.train)))
    histories = [
        fedflat.simulate(
            method, setup.objective.module, data, partition={"name": "dirichlet", "alpha": 0.1, "clients": 20},
            participation={"active": 4, "availability": listed}, rounds=2, local_epochs=1, batch_size=16, lr=0.1,
            weight_decay=0.001, clip=10, seed=5, lr_decay=0.998, engine="loop", hyperparameters=values,
        ).history
        for method, values in (("fedavg", {}), ("fedsam", {"rho": 0.1}))
    ]  # fmt: skip
    assert histories[0]["local_loss"].tolist() == pytest.approx(run.metrics()["local_loss"].tolist(), rel=1e-5)
    assert [history["available"].tolist() for history in histories] == [[7, 7]] * 2
