"""Titles of settings are words; those of methods say what surrounds the method."""

import pytest

from fedflat.analysis.layouts.titles import data_title, method_titles, setting_title, with_trained_data
from fedflat.bench.experiments.address import Setting
from fedflat.bench.experiments.experiment import load_experiment


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
        ("iid", "periodic-6-in-24+4-of-20", "IID, 4 of 20 clients, availability periodic 6 in 24"),
        ("pam-0.1-10", "bernoulli-0.2-of-20", "PAM 0.1, 10, 20 clients, each with probability 0.2"),
        ("lda-0", "schedule-my-week-of-20", "LDA 0, 20 clients, schedule my-week"),
        ("by_group", "4-of-20", "By group, 4 of 20 clients"),
        ("cifar10_alpha_0.5", "4-of-20", "cifar10_alpha_0.5, 4 of 20 clients"),
    ],
)
def test_settings_have_titles_in_words(partition: str, participation: str, title: str) -> None:
    assert setting_title(Setting("digits", partition, participation)) == title


@pytest.mark.parametrize(
    ("dataset", "scale", "title"),
    [
        ({"name": "officehome", "test_domain": "Real World"}, "paper", "OfficeHome (real world)"),
        ({"name": "domainnet", "test_domain": "sketch", "lists": "official"}, "paper", "DomainNet (sketch, official)"),
        ({"name": "idda", "setting": "country", "split": "uniform"}, "paper", "IDDA (country, uniform)"),
        ("landmarks_user_160k", "paper", "Landmarks-User-160k"),
        ("landmarks_user_160k", "smoke", "scikit-learn's digits"),
        ({"name": "officehome", "test_domain": "art"}, "smoke", "scikit-learn's digits in several styles (rotated)"),
        ({"name": "mnist1d"}, "paper", "mnist1d"),
    ],
)
def test_data_sets_have_titles_with_what_is_held_out(dataset: object, scale: str, title: str) -> None:
    part = load_experiment("quick").model_copy(update={"dataset": dataset, "scale": scale})
    assert data_title(part) == title


def test_headings_name_the_data_that_are_trained_at_smoke_scale() -> None:
    assert with_trained_data("OfficeHome") == "Digits for OfficeHome"
    assert with_trained_data("Means on DomainNet") == "Means on digits for DomainNet"
    assert with_trained_data("scikit-learn's digits in several styles") == "scikit-learn's digits in several styles"
