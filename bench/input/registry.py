"""Registries of the named classes in a package: a class in a new file is a new choice, without an entry in a list."""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from inspect import isabstract, isclass
from typing import Annotated, Any, Protocol, Self, TypeVar, Union

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from fedflat.bench.input.errors import UserError, unknown

T = TypeVar("T")
Parsed = TypeVar("Parsed", bound="Parses")


class Parses(Protocol):
    """A configuration, as `Frozen` is."""

    @classmethod
    def parse(cls, data: Mapping[str, Any], where: str = "") -> Self:
        """The validated configuration; a `UserError` begins with `where`."""


def registered(base: type[T], *packages: str, key: str = "name") -> dict[str, type[T]]:
    """The named, concrete subclasses of `base` that the modules of these packages define, sorted by name.

    The name is the class variable `key`, or the default of the model field `key`. Subpackages are included.
    """
    found: dict[str, type[T]] = {}
    for package in packages:
        folder = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(folder, f"{package}."):
            for value in vars(importlib.import_module(module.name)).values():
                if isclass(value) and issubclass(value, base) and value.__module__ == module.name:
                    name = _name(value, key)
                    if isinstance(name, str) and not isabstract(value):
                        if name in found:
                            raise TypeError(
                                f"{found[name].__qualname__} and {value.__qualname__} are both named '{name}'"
                            )
                        found[name] = value
    return dict(sorted(found.items()))


def _name(cls: type, key: str) -> object:
    fields: Mapping[str, Any] = getattr(cls, "model_fields", {})
    return fields[key].default if key in fields else getattr(cls, key, None)


def parse_named(kinds: Mapping[str, type[Parsed]], what: str, options: Any, where: str, example: str) -> Parsed:
    """The one of the kinds that `options` names, with its other options; a `UserError` if they are wrong.

    `what` is the noun of a message about an unknown name; `example` a mapping that is allowed.
    """
    if not isinstance(options, Mapping):
        raise UserError(f"{where} = {options!r} (allowed: a mapping such as {example})")
    name = options.get("name")
    if not isinstance(name, str) or name not in kinds:
        raise unknown(what, str(name), kinds)
    return kinds[name].parse(options, where)


@dataclass(frozen=True)
class OneOf:
    """Marks an annotation: the value is an instance of one of these pydantic models.

    For type checkers `Annotated[Partition, OneOf(...)]` is a Partition. For pydantic it is the union of all registered
    partitions, which cannot be written as a type, because the registry is only known at run time.
    """

    models: Iterable[type[Any]]
    discriminator: str | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema of the union."""
        union: Any = Union[tuple(self.models)]  # noqa: UP007 - the operator | takes no tuple
        if self.discriminator is not None:
            union = Annotated[union, Field(discriminator=self.discriminator)]
        return handler.generate_schema(union)
