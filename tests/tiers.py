"""What `make test` leaves to `make test-all`: tests with the marker `thorough`.

`make test` runs `pytest -m "not thorough"`. `make test-all` runs every test, as `pytest` without options does.

- A check of all methods takes `METHODS` as its parameters: methods without a component class of their own are thorough.
- A check of all methods in several ways, such as back ends, takes `in_turn(...)`: one method in the first way, the next
  in the second; the other pairs are thorough.
- Another parametrised test marks its parameters with `case(..., quick=...)`.
- A whole test that takes long, and whose kind of check other tests have, too, has the decorator `@thorough`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.recipe import Recipe

thorough = pytest.mark.thorough


def case(*values: Any, quick: bool, name: str | None = None) -> Any:
    """The parameters of a test, which is thorough unless they are `quick`."""
    return pytest.param(*values, marks=[] if quick else [thorough], id=name)


def covering(recipes: Mapping[str, Recipe]) -> list[str]:
    """A few methods that have every component class: each time, the first that adds the most classes."""
    classes = {name: set(recipe.components.by_slot().values()) for name, recipe in recipes.items()}
    missing, chosen = set().union(*classes.values()), []
    while missing:
        chosen.append(max(classes, key=lambda name: len(classes[name] & missing)))
        missing -= classes[chosen[-1]]
    return chosen


COVERING = covering(CATALOG)
METHODS = [case(name, quick=name in COVERING) for name in CATALOG]
"""All methods, as the parameters of a test."""


def in_turn(
    *ways: tuple[Any, ...], names: Collection[str] = tuple(CATALOG), quick: Sequence[str] = COVERING
) -> list[Any]:
    """Each name in each way, as parameters; in `make test`, those that are `quick` take turns in the ways."""
    assert len(ways) <= len(quick), "a way without a name"
    turns = {(name, turn % len(ways)) for turn, name in enumerate(quick)}
    return [case(name, *way, quick=(name, number) in turns) for name in names for number, way in enumerate(ways)]
