"""Hyper-parameters of each paper's experiment against a list transcribed from the paper, value by value."""

import csv
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest

from analysis.published.numbers import papers
from bench.experiments.experiment import load_experiment
from bench.experiments.files import PAPER_TABLES

DEPARTURES = {("fedsam_caldarola", "cifar100_pam", "training.local_momentum")}
"""What the papers state and the experiments do not have; each paper's README says why."""

COUNTS = "counts"
"""A part in which messages are counted, in few rounds on other data: what a paper states of all is not meant of it."""


@cache
def _runs(paper: str) -> dict[str, dict[str, Any]]:
    """By the path of each cell, its first run as plain values."""
    experiment = load_experiment(paper)
    return {path: experiment.cell(path).runs[0].model_dump() for path in experiment.paths()}


def _of(paper: str, part: str, method: str, partition: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The runs that a line of a transcript speaks of; `*` is all, `*_200` all that end so."""
    for path, run in _runs(paper).items():
        its_part, its_partition, _, its_method = path.split("/")
        is_meant = fnmatchcase(its_part, part) and (its_part != COUNTS or part == COUNTS)
        if is_meant and fnmatchcase(its_method, method) and fnmatchcase(its_partition, partition):
            yield path, run


def _value(run: dict[str, Any], key: str) -> Any:
    """What a run has by a dotted key; an augmentation goes by its name."""
    section, *names = key.split(".")
    value: Any = run["method"][section] if section == "hyperparameters" else run[section]
    for name in names:
        if isinstance(value, (tuple, list)):
            value = {step["name"]: step for step in value}
        value = value.get(name)
    return value


def _same(value: Any, printed: str) -> bool:
    """Whether a value is the printed one, or one of several with | between them."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return any(float(value) == float(one) for one in printed.split("|"))
    return str(value).lower() in printed.split("|")


def _wrong(values: dict[str, Any], printed: str) -> dict[str, Any]:
    """By path, the values that are not what is printed; of several with & between them, "missing" are those of no run.

    `*` among these stands for others of our own.
    """
    each = set(printed.split("&"))
    stated = each - {"*"}
    others = {path: value for path, value in values.items() if not any(_same(value, one) for one in stated)}
    missing = {one for one in stated if not any(_same(value, one) for value in values.values())}
    return ({} if "*" in each else others) | ({"missing": missing} if missing else {})


@pytest.mark.parametrize("paper", papers())
def test_experiments_agree_with_what_the_papers_state(paper: str) -> None:
    departing, wrong = set(), []
    with (PAPER_TABLES / paper / "transcript.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            part, method, partition, key, printed = line.values()
            found = {path: _value(run, key) for path, run in _of(paper, part, method, partition)}
            assert found, f"nothing fits {part}, {method}, {partition}"
            bad = _wrong(found, printed)
            if bad and (paper, part, key) in DEPARTURES:
                departing.add((paper, part, key))
            elif bad:
                wrong.append((*line.values(), *next(iter(bad.items()))))
    assert not wrong
    assert departing == {known for known in DEPARTURES if known[0] == paper}


@pytest.mark.parametrize(
    ("values", "printed", "wrong"),
    [
        ({"a": 5, "b": 10}, "5|10|20", {}),
        ({"a": 5, "b": 10}, "5&10", {}),
        ({"a": 5, "b": 10}, "5", {"b": 10}),
        ({"a": 5, "b": 10}, "5&*", {}),
        ({"a": 5, "b": 10}, "5&10&20", {"missing": {"20"}}),
        ({"a": 5, "b": 10}, "5&20&*", {"missing": {"20"}}),
        ({"a": "lda"}, "lda&iid", {"missing": {"iid"}}),
        ({"a": None}, "5", {"a": None, "missing": {"5"}}),
    ],
)
def test_what_departs_from_a_line_is_seen(values: dict[str, Any], printed: str, wrong: dict[str, Any]) -> None:
    assert _wrong(values, printed) == wrong
