"""The search ranges of the catalog's methods: valid values, in order, and none of what has no effect."""

import numpy as np
import pytest

from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.sections.method_choice import MethodConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods import CATALOG
from fedflat.bench.methods.marks import Search
from fedflat.bench.tuning.ranges import HYPERPARAMETERS, TRAINING, places_of, ranges_of, value_at
from tests.documents import PAGES

SETTING = "digits/dirichlet-0.1/4-of-20"


def method(name: str, **hyperparameters: object) -> MethodConfig:
    changes = {f"methods.{name}.hyperparameters.{key}": value for key, value in hyperparameters.items()}
    return load_experiment("quick_catalog", changes).cell(f"{SETTING}/{name}").runs[0].method


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_the_ends_of_every_range_are_valid_values(name: str) -> None:
    chosen = method(name)
    ranges = ranges_of(chosen)
    assert f"{TRAINING}lr" in ranges
    for place, search in ranges.items():
        section, _, key = place.partition(".")
        for value in search.ends:
            if section == "training":
                StepSettings.parse({"lr": 0.1, key: value})
                chosen.built.check_server_lr(value if key == "server_lr" else 1)
            else:
                MethodConfig.parse({"name": name, "hyperparameters": {**chosen.hyperparameters, key: value}})


def test_what_has_no_effect_is_not_searched() -> None:
    assert list(ranges_of(method("fedavg"))) == ["training.lr", "training.server_lr"]
    assert list(ranges_of(method("feddyn"))) == ["training.lr", "hyperparameters.lam"]
    whole, part = (ranges_of(method("fedsmoo", regulariser=on)) for on in (True, False))
    assert "hyperparameters.lam" in whole
    assert "training.server_lr" not in whole
    assert list(part) == ["training.lr", "training.server_lr", "hyperparameters.rho"]
    wrapped = ranges_of(method("fedavg", swa={"cycle": 5}))
    assert list(wrapped)[2:] == ["hyperparameters.swa.cycle", "hyperparameters.swa.lr_end"]
    adaptive = ranges_of(method("fedadam"))["training.server_lr"]
    assert adaptive.low == 0.01, "adaptive servers take smaller steps"


def test_components_with_the_same_hyperparameter_may_be_searched_apart() -> None:
    same = {"perturbation": "mixed_sam", "correction": "fedcm"}
    apart = {"rho": 0.1, "perturbation.alpha": 0.9, "correction.alpha": 0.1}
    found = ranges_of(MethodConfig.parse({**same, "hyperparameters": apart}))
    assert "hyperparameters.correction.alpha" in found
    assert "hyperparameters.alpha" in ranges_of(
        MethodConfig.parse({**same, "hyperparameters": {"rho": 0.1, "alpha": 1}})
    )


def test_values_cover_the_range_evenly_or_evenly_in_the_logarithm() -> None:
    shares = np.linspace(0, 1, 101)
    even, log = Search(low=0.1, high=0.9), Search(low=0.001, high=0.1, log=True)
    assert [even.at(share) for share in (0, 0.5, 1)] == [0.1, 0.5, 0.9]
    assert [log.at(share) for share in (0, 0.5, 1)] == [0.001, 0.01, 0.1]
    for search in (even, log):
        values = [search.at(share) for share in shares]
        assert values == sorted(values)
        assert all(search.ends[0] <= value <= search.ends[1] for value in values)
    assert Search(low=1, high=100, log=True).at(0.5, whole=True) == 10
    assert [Search(values=(5, 10, 20)).at(share) for share in (0, 0.34, 0.99, 1)] == [5, 10, 20, 20]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs low and high, or values"),
        ({"low": 0.1}, "needs low and high, or values"),
        ({"values": ()}, "has no values"),
        ({"values": (1, 1)}, "has a value twice"),
        ({"low": 1, "high": 2, "values": (1,)}, "either values, or low and high"),
        ({"log": True, "values": (1,)}, "either values, or low and high"),
        ({"low": 0.5, "high": 0.5}, "is empty"),
        ({"low": 0.5, "high": 0.1}, "is empty"),
        ({"low": 0, "high": 1, "log": True}, "begins at 0"),
        ({"low": float("nan"), "high": 1}, "is empty"),
    ],
)
def test_empty_and_contradictory_ranges_are_refused(given: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Search(**given)


def test_every_range_names_a_place_that_can_be_given() -> None:
    for name in CATALOG:
        chosen = method(name)
        places = places_of(chosen.recipe, has_swa=False)
        assert {
            places[place.removeprefix(TRAINING).removeprefix(HYPERPARAMETERS)] for place in ranges_of(chosen)
        } == set(ranges_of(chosen))


def test_the_documented_ranges_are_those_of_the_catalog() -> None:
    rows = [line for line in PAGES["studies/pages/search_ranges.md"].text.splitlines() if line.startswith("| `")]
    for name in CATALOG:
        for place, search in ranges_of(method(name, swa={"cycle": 5})).items():
            short = place.removeprefix(TRAINING).removeprefix(HYPERPARAMETERS)
            words = (
                [f"{search.low:g} to {search.high:g}"] if search.values is None else [f"{v:g}" for v in search.values]
            )
            found = [row for row in rows if f"`{short}`" in row.split("|")[1]]
            assert any(all(word in row.split("|")[3] for word in words) for row in found), (name, short)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("training.lr", 0.2),
        ("hyperparameters.server.beta", 0.9),
        ("hyperparameters.swa.cycle", 3),
        ("hyperparameters.beta", None),
        ("training.lr.beta", None),
        ("model", None),
    ],
)
def test_the_value_at_a_place(place: str, value: float | None) -> None:
    values = {"training": {"lr": 0.2}, "hyperparameters": {"server.beta": 0.9, "swa": {"cycle": 3}}}
    assert value_at(place, values) == value
