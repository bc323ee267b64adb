"""What `make test` leaves to `make test-all`: tests with the marker `thorough`.

`make test` runs `pytest -m "not thorough"`. `make test-all` runs every test, as `pytest` without options does.

- A check of all methods takes `METHODS` as its parameters: methods without a component class of their own are thorough.
- A whole test that takes long, and whose kind of check other tests have, too, has the decorator `@thorough`.
"""

from collections.abc import Mapping

import pytest

from bench.methods.catalog import CATALOG
from bench.methods.recipe import Recipe

thorough = pytest.mark.thorough


def covering(recipes: Mapping[str, Recipe]) -> list[str]:
    """A few methods that have every component class: each time, the first that adds the most classes."""
    classes = {name: set(recipe.components.by_slot().values()) for name, recipe in recipes.items()}
    missing, chosen = set().union(*classes.values()), []
    while missing:
        chosen.append(max(classes, key=lambda name: len(classes[name] & missing)))
        missing -= classes[chosen[-1]]
    return chosen


COVERING = covering(CATALOG)
METHODS = [name if name in COVERING else pytest.param(name, marks=thorough) for name in CATALOG]
"""All methods, as the parameters of a test."""
