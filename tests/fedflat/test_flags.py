"""Flags are true or false: "no" is a text, which Python counts as true, and pydantic as false."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import BaseModel

import fedflat
from fedflat.analysis.analyses import ANALYSES, parse_analysis
from fedflat.analysis.figures.draw import KINDS
from fedflat.bench.experiments.schema import ExperimentFile
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.compose import compose
from tests.annotations import classes_below

X, Y = torch.zeros(4, 3), torch.arange(4) % 2
WRONG = ["no", "yes", "x", "", 0, 1, 1.0, [], {"a": 1}, np.int64(1)]


def model() -> torch.nn.Module:
    with torch.random.fork_rng():
        return torch.nn.Linear(3, 2)


def simulated(**options: Any) -> object:
    return fedflat.simulate("fedavg", model(), [(X, Y)], participation=1, rounds=1, local_steps=1, lr=0.1, **options)


CALLS: dict[str, Callable[[Any], object]] = {
    "surface: orthogonal": lambda flag: fedflat.surface(model(), (X, Y), points=3, orthogonal=flag),
    "surface: progress": lambda flag: fedflat.surface(model(), (X, Y), points=3, progress=flag),
    "simulate: progress": lambda flag: simulated(progress=flag),
    "simulate: keep_every_round": lambda flag: simulated(keep_every_round=flag),
    "simulate: prox_split": lambda flag: simulated(prox_split=flag),
    "load_run: trust": lambda flag: fedflat.load_run("absent", trust=flag),
    "load_model: trust": lambda flag: fedflat.load_model("absent", trust=flag),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_flags_of_functions(call, wrong):
    with pytest.raises(UserError, match=r"(orthogonal|progress|keep_every_round|prox_split|trust) = .* \(allowed: "):
        call(wrong)


def test_flags_of_functions_are_used():
    assert len(fedflat.surface(model(), (X, Y), points=3, orthogonal=True, progress=False)) == 9
    with torch.random.fork_rng():
        assert len(simulated(progress=None, keep_every_round=True).global_params) == 1


def test_flags_may_be_those_of_a_row_of_a_data_frame():
    row = pd.DataFrame({"prox_split": [True], "progress": [False], "keep_every_round": [True]}).iloc[0]
    assert all(type(row[flag]) is np.bool_ for flag in row.index)
    with torch.random.fork_rng():
        assert len(simulated(**row).global_params) == 1


def all_flags() -> list[tuple[type[BaseModel], str]]:
    """The configurations with flags, and the names of the flags."""
    kinds = classes_below(ExperimentFile, *ANALYSES.values(), *KINDS.values())
    return [
        (kind, name)
        for kind in kinds
        if issubclass(kind, BaseModel)
        for name, field in kind.model_fields.items()
        if field.annotation in (bool, bool | None)
    ]


@pytest.mark.parametrize(("kind", "name"), all_flags(), ids=lambda one: getattr(one, "__name__", one))
def test_flags_of_configurations(kind, name):
    """Of experiments, analyses and layouts of figures."""
    assert issubclass(kind, Frozen)
    for wrong in ("no", "yes", 0, 1, 1.0, "true"):
        with pytest.raises(UserError, match=rf"{name} = .* \(allowed: true or false\)"):
            kind.model_validate({name: wrong})


def test_flags_of_methods():
    recipes = [*CATALOG.values(), compose({"server": "adam"}), compose({"correction": "feddyn", "server": "feddyn"})]
    found = [(one, flag) for one in recipes for flag, info in one.hyperparameters.items() if info.annotation is bool]
    assert len(found) > 5
    for recipe, flag in found:
        with pytest.raises(UserError, match=rf"^{re.escape(recipe.name)}: {flag} = 'no' \(allowed: true or false\)"):
            recipe.build({flag: "no"})


def test_flags_of_analyses():
    with pytest.raises(UserError, match=r"orthogonal = 'no' \(allowed: true or false\)"):
        parse_analysis("surface", {"orthogonal": "no"})
