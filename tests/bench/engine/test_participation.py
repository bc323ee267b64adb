"""Who takes part when: all clients, or those that a file lists."""

import pytest

from fedflat.bench.engine.participation import Participation, active_clients
from fedflat.bench.engine.round_file import clients_by_round
from fedflat.bench.input.errors import UserError

SCHEDULE = "round,client\n0,3\n0,1\n1,0\n2,4\n2,0\n2,2\n"


def schedule(tmp_path, text=SCHEDULE):
    path = tmp_path / "my week.csv"
    path.write_text(text, encoding="utf-8")
    return Participation.parse({"sampling": "schedule", "file": path})


def test_full_participation_is_everybody_in_every_round():
    full = Participation(sampling="full")
    assert [active_clients(full, 5, seed, t) for seed in (0, 1) for t in (0, 9)] == [[0, 1, 2, 3, 4]] * 4
    assert full.label(5) == "all-of-5"
    assert full.sampled("bernoulli", 5) == full.sampled("fixed", 5) == full


def test_a_schedule_is_followed(tmp_path):
    listed = schedule(tmp_path)
    assert [active_clients(listed, 5, 0, t) for t in range(3)] == [[1, 3], [0], [0, 2, 4]]
    assert listed.label(5) == "schedule-my-week-of-5"
    assert listed.sampled("bernoulli", 5) == listed
    listed.check(5, rounds=3)


def test_a_schedule_is_read_and_checked_once(tmp_path):
    """Not in every round: a schedule of 10,000 rounds would be walked 10,000 times."""
    listed = schedule(tmp_path)
    before = clients_by_round.cache_info().misses
    listed.check(5, rounds=3)
    for t in (0, 1, 2):
        active_clients(listed, 5, 0, t)
    assert clients_by_round.cache_info().misses == before + 1
    with pytest.raises(UserError, match=r"has client 4 in round 2 \(allowed: 0 to 3\)"):
        active_clients(listed, 4, 0, 0)
    with pytest.raises(UserError, match="has 3 rounds, but training has 4"):
        active_clients(listed, 5, 0, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SCHEDULE + "1,5\n", r"has client 5 in round 1 \(allowed: 0 to 4\)"),
        (SCHEDULE + "1,0\n", "has client 0 twice in round 1"),
        (SCHEDULE + "4,0\n", "has no client in round 3: every round needs one, counted from 0"),
        (SCHEDULE.replace("0,", "7,"), "has no client in round 0"),
        (SCHEDULE + "-1,0\n", "round = -1: rounds and clients are counted from 0"),
        (SCHEDULE + "3,-2\n", "client = -2: rounds and clients are counted from 0"),
        (SCHEDULE + "3,anna\n", "client = 'anna': allowed are whole numbers"),
        ("round,client\n", "has no rows"),
        ("round,user\n0,1\n", r"lacks the column client \(it has: round, user\)"),
        ("round,client\n0,1\n1,1\n", "has 2 rounds, but training has 3"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_reported_before_training(text, message, tmp_path):
    with pytest.raises(UserError, match=message) as error:
        schedule(tmp_path, text).check(5, rounds=3)
    assert "my week.csv" in str(error.value)


def test_a_schedule_counts_by_its_content(tmp_path):
    listed = schedule(tmp_path)
    listed.file.write_text("round,client\n0,0\n", encoding="utf-8")
    listed.check(5, rounds=3)  # of a finished run
    with pytest.raises(UserError, match="has changed: its hash differs"):
        active_clients(listed, 5, 0, 0)
    listed.file.unlink()
    assert Participation.parse(listed.model_dump()) == listed
    with pytest.raises(UserError, match="cannot read the schedule file"):
        Participation.parse({"sampling": "schedule", "file": tmp_path / "nowhere.csv"})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"sampling": "full", "active": 3},
        {"sampling": "schedule"},
        {"sampling": "schedule", "active": 3},
        {"sampling": "bernoulli", "active": 3},
        {"active": 3, "probability": 0.5},
        {"sampling": "full", "hash": "abc"},
    ],
)
def test_each_sampling_takes_its_own_field(fields):
    with pytest.raises(UserError, match="participation needs active with sampling: fixed, probability with"):
        Participation.parse(fields)
