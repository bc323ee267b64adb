"""How a configuration selects a method: by its name in the catalog or a user-defined file, each with further components
if wanted, or by its components alone."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from fedflat.bench.code.named_code import CodeFile, NamedCode
from fedflat.bench.input.content import code_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.field_words import FilledIn
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.methods.catalog import recipe
from fedflat.bench.methods.compose import SLOTS, combine, compose
from fedflat.bench.methods.method import Method
from fedflat.bench.methods.recipe import Recipe
from fedflat.bench.methods.user_file import KIND, recipe_from_file

HyperParameters = dict[str, Any]
"""Hyper-parameters by name; the method's recipe validates their values."""


class MethodChoice(Frozen):
    """A method's `name` in the catalog, or its components, or a `file` that defines METHOD; and hyper-parameters.

    Components next to a name or a file take the slots in which the method has FedAvg's. FedAvg's component in another
    slot (none, average, cross_entropy) takes the method's own out.
    """

    name: str | None = Field(default=None, description="a method of the catalog")
    perturbation: str | None = Field(default=None, description="component; default: the method's, or none")
    correction: str | None = Field(default=None, description="component; default: the method's, or none")
    server: str | None = Field(default=None, description="component; default: the method's, or average")
    loss: str | None = Field(default=None, description="component; default: the method's, or cross_entropy")
    file: Path | None = Field(default=None, description="a Python file that defines METHOD = Recipe(...)")
    hyperparameters: HyperParameters = Field(default={}, description="by canonical name; swa wraps the method in SWA")

    @model_validator(mode="after")
    def _named_once(self) -> "MethodChoice":
        if self.name is not None and self.file is not None:
            raise UserError("a method is given by name or by file, not by both")
        return self

    @property
    def slots(self) -> dict[str, str]:
        """The components that are given, by slot."""
        return {slot: getattr(self, slot) for slot in SLOTS if getattr(self, slot) is not None}

    @cached_property
    def recipe(self) -> Recipe:
        """The chosen method's recipe; a `UserError` if there is no such method, component or file."""
        if self.file is not None:
            return recipe_from_file(self.file, self.slots)
        if self.name is not None:
            return combine(recipe(self.name), self.slots) if self.slots else recipe(self.name)
        if not self.slots:
            raise UserError("a method needs a name, components, or a file")
        return compose(self.slots)


class MethodConfig(NamedCode, MethodChoice):
    """A run's method with every hyper-parameter filled in; `code` is the hash of a user-defined file."""

    code: Annotated[str | None, FilledIn()] = Field(default=None, description="hash of the file; filled in")

    @classmethod
    def kind_of_file(cls) -> str:
        """The kind of the file in messages."""
        return KIND

    @property
    def code_file(self) -> CodeFile | None:
        """The file; None if the method is one of the catalog, or has only components of it."""
        return None if self.file is None else CodeFile(KIND, self.file, self.code)

    @cached_property
    def built(self) -> Method:
        """The method with these hyper-parameters."""
        return self.recipe.build(self.hyperparameters)

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
        return {**data, "code": code_hash(choice.file, data.get("code"), KIND)}
