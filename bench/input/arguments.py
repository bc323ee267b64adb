"""Checks the arguments of functions that users call from Python, by their annotations: one line for each mistake.

`checked` knows flags, numbers and their bounds, text, choices (Literal), paths and mappings of plain values. Any other
annotation says with an `Argument` what is allowed.
"""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from math import inf, isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from pydantic.fields import FieldInfo

from fedflat.bench.input.errors import UserError, raise_all, unknown

P = ParamSpec("P")
T = TypeVar("T")

MOST_EXACT = 2**53
"""Above it, a floating-point number may be a rounded whole number, for example in a row of a data frame."""

DEEPEST = 20
"""Mappings and lists within each other: a configuration has a few, a structure that holds itself has no end."""


@dataclass(frozen=True)
class Argument:
    """What is allowed for an argument, in words, and a function that converts an allowed value.

    The function raises a ValueError, TypeError or OverflowError for any other value, or a `UserError` with own words.
    """

    allowed: str
    convert: Callable[[Any], Any]

    @classmethod
    def instance(cls, allowed: str, *types: type) -> "Argument":
        """Instances of one of the types."""
        return cls(allowed, lambda value: _required(isinstance(value, types), value))

    @classmethod
    def checked_later(cls) -> "Argument":
        """A value that the function itself checks, because what is allowed depends on another argument."""
        return cls("", lambda value: value)


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which raises a `UserError` with a line for each argument that its annotations do not allow.

    It receives converted values: 2 for 2.0, a Python number for one of NumPy. No conversion changes a number.
    """
    signature, name = inspect.signature(function), function.__qualname__.removesuffix(".__init__")
    hints = get_type_hints(function, include_extras=True)
    arguments = {key: _argument(hints[key]) for key in signature.parameters if key in hints}

    @wraps(function)
    def call(*given: P.args, **options: P.kwargs) -> T:
        for key in options:
            if key not in signature.parameters:
                raise unknown(f"argument of {name}", key, arguments)
        try:
            bound = signature.bind(*given, **options)
        except TypeError as error:
            raise UserError(f"{name}: {error}") from None
        mistakes = []
        for key, value in bound.arguments.items():
            if key not in arguments:  # self
                continue
            try:
                bound.arguments[key] = convert(key, value, arguments[key])
            except UserError as error:
                mistakes.append(error)
        raise_all(name, mistakes)
        return function(*bound.args, **bound.kwargs)

    return call


def checked_fields(cls: type[T]) -> type[T]:
    """The data class, whose instances are made of `checked` fields."""
    setattr(cls, "__init__", checked(cls.__init__))  # noqa: B010 - mypy refuses "="
    return cls


def convert(name: str, value: object, argument: Argument) -> Any:
    """The converted value of an argument with this name; a `UserError` says what is allowed."""
    try:
        return argument.convert(value)
    except (ValueError, TypeError, OverflowError):
        raise UserError(f"{name} = {shown(value)} (allowed: {argument.allowed})") from None


def shown(value: object) -> str:
    """A value for messages; only the type of one that needs several lines, or that Python cannot show."""
    try:
        text = repr(value)
    except Exception:  # a class of the user; a whole number of thousands of digits
        text = "\n"
    return f"an object of the type {type(value).__name__}" if "\n" in text else text


def whole(least: int, most: int) -> Argument:
    """Whole numbers between these, also as a floating-point number such as 2.0, or as a number of NumPy."""

    def converted(value: Any) -> int:
        _required(_is_number(value), value)
        number = int(value)
        is_exact = isinstance(value, int | np.integer) or abs(number) <= MOST_EXACT
        return int(_required(is_exact and number == value and least <= number <= most, number))

    bounds = f"from {least:,} to {most:,}" if most < MOST_EXACT else f"from {least:,} to 2**{most.bit_length()} - 1"
    return Argument(f"whole numbers {bounds}", converted)


def number(*, above: float = -inf, most: float = inf) -> Argument:
    """Finite numbers, also numbers of NumPy, that a floating-point number of Python holds exactly."""

    def converted(value: Any) -> float:
        value = int(value) if isinstance(_required(_is_number(value), value), np.integer) else value
        result = float(value)  # NumPy would round 2**64 - 1 in the comparison, too
        return float(_required(isfinite(result) and above < result <= most and result == value, result))

    parts = [f" above {above:g}" * isfinite(above), f" up to {most:g}" * isfinite(most)]
    return Argument(f"numbers{','.join(filter(None, parts))}", converted)


def _is_number(value: object) -> bool:
    is_python = isinstance(value, int | float) and not isinstance(value, bool)
    return is_python or (isinstance(value, np.integer | np.floating) and not isinstance(value, np.timedelta64))


def path(value: Any) -> Path:
    """A path of text, with ~ expanded; a ValueError if no file can have it, for example because it is too long."""
    text = os.fspath(value)
    _required(isinstance(text, str) and bool(text.strip()), value)
    try:
        found = Path(text).expanduser()
        found.exists()
    except PermissionError:  # reported when the file is read
        return found
    except (OSError, RuntimeError) as error:
        raise ValueError(str(error)) from None
    return found


def _name_or_file(value: Any) -> str:
    path(value)
    text: str = os.fspath(value)
    return text


NameOrFile = Annotated[str | os.PathLike[str], Argument("a name, or the path of a YAML file", _name_or_file)]
"""An experiment; the function receives text."""


def plain(value: Any, depth: int = 0) -> Any:
    """A value as YAML has them, with numbers of NumPy as those of Python; a TypeError for any other."""
    if depth > DEEPEST:
        raise TypeError("too many lists and mappings within each other")
    if isinstance(value, Mapping):
        return {str(_required(isinstance(key, str), key)): plain(own, depth + 1) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [plain(own, depth + 1) for own in value]
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return WHOLE.convert(value)
    if isinstance(value, np.floating):
        return value if np.isnan(value) else REAL.convert(value)
    return _required(isinstance(value, NoneType | bool | int | float | str | Path), value)


REAL = number()
WHOLE = whole(-(2**63), 2**63 - 1)


def plain_mapping(example: str) -> Argument:
    """Mappings of text and plain values, such as the one in the example."""

    def converted(value: Any) -> Any:
        return plain(_required(isinstance(value, Mapping), value))

    return Argument(f"a mapping of names to plain values, such as {example}", converted)


def _required(is_allowed: bool, value: Any) -> Any:
    if not is_allowed:
        raise ValueError("not allowed")
    return value


def _argument(hint: Any) -> Argument:
    """The `Argument` of an annotation."""
    if get_origin(hint) is Annotated:
        base, *notes = get_args(hint)
        own = [note for note in notes if isinstance(note, Argument)]
        return own[0] if own else _bounded(base, [part for note in notes for part in _parts(note)])
    if get_origin(hint) in (Union, UnionType):
        if Path in get_args(hint):  # str | Path
            return _PATH
        return _any_of([_argument(member) for member in get_args(hint)])
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return Argument(", ".join(map(str, choices)), lambda value: _required(_is_one_of(value, choices), value))
    return _OF_TYPES[hint]


def _is_one_of(value: object, choices: tuple[object, ...]) -> bool:
    return isinstance(value, str) and value in choices


def _parts(note: object) -> list[object]:
    return list(note.metadata) if isinstance(note, FieldInfo) else []


def _bounded(base: type, notes: list[object]) -> Argument:
    """Numbers within the bounds of a field of a configuration."""
    bounds = {key: getattr(note, key) for note in notes for key in ("ge", "gt", "le") if hasattr(note, key)}
    return whole(bounds["ge"], bounds["le"]) if base is int else number(above=bounds["gt"], most=bounds.get("le", inf))


def _any_of(members: list[Argument]) -> Argument:
    """What at least one of them allows; None is not mentioned: it is the default of arguments that allow it."""

    def converted(value: Any) -> Any:
        for member in members:
            try:
                return member.convert(value)
            except (ValueError, TypeError, OverflowError):
                continue
        raise ValueError("not allowed")

    named = [member.allowed for member in members if member is not _NONE]
    return members[0] if len(members) == 1 else Argument("; or ".join(named), converted)


_NONE = Argument("None", lambda value: _required(value is None, value))
_PATH = Argument("the path of a file or folder", path)
_TEXT = Argument("text", lambda value: str(_required(isinstance(value, str), value)))
_OF_TYPES: Mapping[Any, Argument] = {
    NoneType: _NONE,
    bool: Argument("True or False", lambda value: bool(_required(isinstance(value, bool | np.bool_), value))),
    str: _TEXT,
    float: number(),
    Path: _PATH,
}
