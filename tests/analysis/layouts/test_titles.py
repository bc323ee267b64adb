"""Titles of settings are words; those of methods say what surrounds the method."""

import pytest

from analysis.layouts.titles import method_titles, setting_title
from bench.experiments.address import Setting
from bench.experiments.experiment import load_experiment


@pytest.mark.parametrize(
    ("swa", "title"),
    [({"cycle": 2}, "FedSAM + SWA"), ({"cycle": 2, "collect": "none"}, "FedSAM, cyclic rate")],
    ids=str,
)
def test_averaging_and_a_cyclic_rate_are_named(swa: dict[str, object], title: str) -> None:
    experiment = load_experiment("quick", {"methods.fedsam.hyperparameters.swa": swa})
    assert method_titles(experiment)["fedsam"] == title


@pytest.mark.parametrize(
    ("partition", "participation", "title"),
    [
        ("dirichlet-0.6", "4-of-20", "Dirichlet 0.6, 4 of 20 clients"),
        ("dirichlet-0.6-released", "all-of-20", "Dirichlet 0.6, released, all of 20 clients"),
        ("pam-0.1-10", "bernoulli-0.2-of-20", "PAM 0.1, 10, 20 clients, each with probability 0.2"),
        ("lda-0", "schedule-my-week-of-20", "LDA 0, 20 clients, schedule my-week"),
        ("by_group", "4-of-20", "By group, 4 of 20 clients"),
        ("cifar10_alpha_0.5", "4-of-20", "cifar10_alpha_0.5, 4 of 20 clients"),
    ],
)
def test_settings_have_titles_in_words(partition: str, participation: str, title: str) -> None:
    assert setting_title(Setting("digits", partition, participation)) == title
