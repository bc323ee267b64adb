"""Titles of methods say what surrounds the method."""

import pytest

from analysis.layouts.titles import method_titles
from bench.experiments.experiment import load_experiment


@pytest.mark.parametrize(
    ("swa", "title"),
    [({"cycle": 2}, "FedSAM + SWA"), ({"cycle": 2, "collect": "none"}, "FedSAM, cyclic rate")],
    ids=str,
)
def test_averaging_and_a_cyclic_rate_are_named(swa: dict[str, object], title: str) -> None:
    experiment = load_experiment("quick", {"methods.fedsam.hyperparameters.swa": swa})
    assert method_titles(experiment)["fedsam"] == title
