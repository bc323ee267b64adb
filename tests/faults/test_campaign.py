"""A small campaign; the whole one is `python -m tests.faults`."""

import itertools
from random import Random

import pytest

from fedflat.bench.methods.catalog import CATALOG
from tests.faults.campaign import RUNS, Trial, _differences, campaign
from tests.faults.campaign import table as printed
from tests.faults.subjects import SUBJECTS, WAYS, cases
from tests.tiers import thorough

NAMED = {subject.name: subject for subject in SUBJECTS}
WAY = {way.name: way for way in WAYS}


def test_every_method_is_killed_in_every_way():
    met = list(cases())
    assert len(met) == len(set(map(str, met))) == len(SUBJECTS) * len(WAYS)
    assert {subject.method for subject, _ in met[: len(SUBJECTS)]} == set(CATALOG)


@pytest.mark.long
@pytest.mark.parametrize(
    ("subject", "way"),
    [
        ("mimelite", "cohort, seeds together"),
        pytest.param("fedavg with SWA, release", "auto, other home after each kill", marks=thorough),
    ],
)
def test_killed_runs_end_with_the_same_bits(subject, way, tmp_path):
    cases = itertools.repeat((NAMED[subject], WAY[way]))  # on a busy machine, a run may end before its kill
    outcomes = list(campaign(cases, 1, tmp_path, Random(1), most_kills=1))
    assert [outcome.differs for outcome in outcomes if outcome.differs] == []
    resumed, trials = sum(outcome.resumed for outcome in outcomes), len(outcomes)
    assert printed(outcomes).splitlines()[-1] == f"| all | 1 | {trials} | 1 | {resumed} | {trials} |"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_differences_are_found(tmp_path):
    assert Trial(NAMED["scaffold"], WAY["loop"], tmp_path, Random(0), 1)().differs == ()
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    run = min(killed.glob(RUNS))
    final = run / "final.safetensors"
    final.write_bytes(final.read_bytes()[:-1] + b"\x01")
    run.with_name("seed-0.partial-0").mkdir()
    assert list(_differences(undisturbed, killed)) == [
        f"only one has {run.relative_to(killed).with_name('seed-0.partial-0')}",
        "seed-0/final.safetensors",
    ]
