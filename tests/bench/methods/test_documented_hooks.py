"""The tables of the page on methods: fields of rounds with their shapes, and classes of components."""

import dataclasses
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from fedflat.bench.methods.base import ClientRound, ServerRound
from fedflat.bench.methods.compose import SLOTS
from fedflat.bench.methods.corrections.scaffold import ControlVariates
from fedflat.bench.methods.recipe import Components, Recipe
from tests.documents import PAGES
from tests.problems import Problem

PAGE = PAGES["docs/experiments/methods.md"]
KINDS = {"number": int | float, "by name": dict, "object": object, "tuple": tuple}


def table(header: str) -> list[list[str]]:
    """The cells of the rows of all tables with this header, without back quotes."""
    tables = re.findall(rf"^\| {re.escape(header)} \|\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE.text, re.MULTILINE)
    return [[[cell.strip("` ") for cell in row.strip("|").split(" | ")] for row in t.splitlines()] for t in tables]


@pytest.fixture(scope="module")
def rounds() -> dict[type, Any]:
    """A client's and the server's round, as hooks get them."""
    got: dict[type, Any] = {}

    class Recorded(ControlVariates):
        def finish(self, w, client):
            super().finish(w, client)
            got[ClientRound] = client

        def aggregate(self, server):
            super().aggregate(server)
            got[ServerRound] = server

    recipe = Recipe("recorded", "Recorded", "a test", Components(correction=Recorded), takes=())
    Problem(0, rounds=2).run(recipe, engine="loop")
    return got


@pytest.mark.parametrize(("kind", "which"), [(ClientRound, 0), (ServerRound, 1)])
def test_every_field_is_listed_with_its_shape(kind, which, rounds):
    rows = table("field | shape | content")[which]
    known = [field.name for field in dataclasses.fields(kind)]
    known += [name for name in vars(kind) if not name.startswith("_") and name not in known]
    assert [name for name, *_ in rows] == known
    value, sizes = rounds[kind], {"M": 2, "P": 43}
    for name, shape, _ in rows:
        found = getattr(value, name)
        if shape.startswith("["):
            expected = [sizes[letter] for letter in re.findall(r"\w", shape)]
            assert isinstance(found, Tensor)
            assert list(found.shape) == expected, name
        elif shape == "function":
            assert callable(found), name
        else:
            assert isinstance(found, KINDS[shape]), name


def test_the_shapes_in_words(rounds):
    client, server = rounds[ClientRound], rounds[ServerRound]
    assert (
        client.received["control"].shape == client.state["c_i"].shape == client.upload["control_change"].shape == (43,)
    )
    assert server.uploads["control_change"].shape == (2, 43)
    assert server.mean(server.updates).shape == (43,)
    assert client.first_time.dtype == torch.bool


def test_every_component_is_listed_with_its_class():
    [rows] = table("slot | name | class")
    found = [(slot, name, f"fedflat.methods.{cls.__name__}") for slot, of in SLOTS.items() for name, cls in of.items()]
    assert [tuple(row) for row in rows] == found
