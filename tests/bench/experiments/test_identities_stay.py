"""Runs keep their identity: a change of the code must not make the finished runs of users outdated."""

import hashlib
import json

import pytest

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.files import experiment_names
from tests.places import GOLDEN

KNOWN = json.loads((GOLDEN / "identities" / "experiments.json").read_text(encoding="utf-8"))
"""By experiment and scale, the number of cells and a hash over their paths and identities. `python -m
tests.bench.experiments.test_identities_stay` writes the file anew, which a change of a run's numbers needs."""


def digest(name: str, scale: str) -> dict[str, object]:
    cells = load_experiment(name, {} if scale == "paper" else {"scale": scale}).cells()
    lines = "\n".join(f"{path} {cell.identity}" for path, cell in cells.items())
    return {"cells": len(cells), "hash": hashlib.sha256(lines.encode()).hexdigest()[:16]}


def all_digests() -> dict[str, dict[str, object]]:
    return {f"{name} {scale}": digest(name, scale) for name in experiment_names() for scale in ("paper", "smoke")}


@pytest.mark.parametrize("name", experiment_names())
def test_identities_are_those_of_earlier_versions(name):
    for scale in ("paper", "smoke"):
        assert digest(name, scale) == KNOWN[f"{name} {scale}"]


if __name__ == "__main__":
    (GOLDEN / "identities").mkdir(exist_ok=True)
    (GOLDEN / "identities" / "experiments.json").write_text(
        json.dumps(all_digests(), indent=1) + "\n", encoding="utf-8"
    )
