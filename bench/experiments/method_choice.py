"""How a configuration names a method: from the catalog, as a free composition, or from a user's own file."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from bench.input.content import code_of
from bench.input.errors import UserError
from bench.input.frozen import Frozen
from bench.methods.catalog import recipe
from bench.methods.compose import SLOTS, compose
from bench.methods.recipe import Recipe
from bench.methods.user_file import KIND, recipe_from_file

HyperParameters = dict[str, Any]
"""Their values are for the recipe to check, which can say what is allowed."""


class MethodChoice(Frozen):
    """A catalog `name`, or parts by slot, or a `file` that defines METHOD; hyper-parameters by canonical names."""

    name: str | None = Field(default=None, description="a method of the catalog")
    perturbation: str | None = Field(default=None, description="of a free composition; default none")
    correction: str | None = Field(default=None, description="of a free composition; default none")
    server: str | None = Field(default=None, description="of a free composition; default average")
    loss: str | None = Field(default=None, description="of a free composition; default cross_entropy")
    file: Path | None = Field(default=None, description="a Python file that defines METHOD = Recipe(...)")
    hyperparameters: HyperParameters = Field(default={}, description="under canonical names, with swa if wrapped")

    @model_validator(mode="after")
    def _named_once(self) -> "MethodChoice":
        ways = {"name": self.name, "parts": self.slots, "file": self.file}
        given = [way for way, value in ways.items() if value not in (None, {})]
        if len(given) > 1:
            raise UserError(f"a method is given by name, by its parts, or by file, not by {' and '.join(given)}")
        return self

    @property
    def slots(self) -> dict[str, str]:
        """The parts of a free composition, by slot; empty for other methods."""
        return {slot: getattr(self, slot) for slot in SLOTS if getattr(self, slot) is not None}

    @cached_property
    def recipe(self) -> Recipe:
        """What the choice stands for; a `UserError` if there is no such method, part or file."""
        if self.file is not None:
            return recipe_from_file(self.file)
        if self.slots:
            return compose(self.slots)
        if self.name is None:
            raise UserError("a method needs a name, its parts, or a file")
        return recipe(self.name)


class MethodConfig(MethodChoice):
    """A run's method, with every hyper-parameter filled in; `code` is the hash of the user's file, if it has one."""

    code: str | None = Field(default=None, description="hash of the file; filled in")

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        given = data.get("hyperparameters") or {}
        if not isinstance(given, Mapping):
            raise UserError(f"hyperparameters must be a mapping, not {given!r}")
        choice = MethodChoice.parse({key: value for key, value in data.items() if key != "code"})
        data = {**data, "hyperparameters": choice.recipe.complete(given)}
        if choice.file is None:
            return data
        return {**data, "code": code_of(choice.file, data.get("code"), KIND)}
