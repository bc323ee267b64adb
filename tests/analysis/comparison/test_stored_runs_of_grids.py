"""The runs of the grids that the repository stores are those of this version."""

import pytest

from fedflat.analysis.comparison.baselines import load
from fedflat.bench.experiments.address import RUN_IDS
from fedflat.bench.experiments.experiment import load_experiment
from tests.places import ROOT

BASELINES = ROOT / "results" / "baselines"
EXPERIMENTS = {
    "quick": ("quick", "quick_all"),
    "bench1d": ("bench1d", "bench1d"),
}
"""Grids, and the experiments of their runs."""


@pytest.mark.parametrize("grid, experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_stored_runs_are_runs_of_this_version(grid: str, experiment: str) -> None:
    stored = load(grid, BASELINES / grid).runs
    expected = load_experiment(experiment)
    here = {(path, run.seed): run.identity for path, cell in expected.cells().items() for run in cell.runs}
    rows = stored[stored["experiment"] == expected.name][[*RUN_IDS, "identity"]]
    assert {("/".join(cell), seed): identity for *cell, seed, identity in rows.itertuples(index=False)} == here
