"""What a field of a configuration is, in words for messages: its description, and an example."""

from collections.abc import Iterable, Iterator, Mapping
from inspect import isclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedflat.bench.input.registry import OneOf

_NOTHING = {"none", "off", "no", "nothing", "never", "false"}
"""Words that people write for null; off and no without quotes are false in YAML."""


def means_null(given: object) -> bool:
    """Whether a value is one of the words that people write for null."""
    return str(given).lower() in _NOTHING


class FilledIn:
    """Marks a field that FedFlat fills in, such as the hash of a file: messages do not list it among the keys."""


def aliases(fields: Mapping[str, FieldInfo]) -> list[str]:
    """The keys that are no names of fields, because the class has another attribute with this name."""
    return [field.alias for field in fields.values() if field.alias is not None]


def keys(model: type[BaseModel]) -> list[str]:
    """The keys that a user may give."""
    return [
        field.alias or name
        for name, field in model.model_fields.items()
        if not any(isinstance(mark, FilledIn) for mark in field.metadata)
    ]


def described(field: FieldInfo | None, given: object = None) -> str:
    """What a field is, to be appended to a message about the value `given`; empty if it has no description.

    For example ' (epochs E over a client's data per round; for example 5)'. If the word `given` stands for null, which
    the field allows, null is suggested.
    """
    if field is None or field.description is None:
        return ""
    is_nullable = type(None) in get_args(field.annotation)
    meant = "; did you mean null?" if is_nullable and means_null(given) else ""
    example = _example(field)
    return f"{meant} ({field.description}{'' if example is None else f'; for example {example}'})"


def _example(field: FieldInfo) -> str | None:
    """A value that the field allows, as in YAML: a given example, or the default unless it is null or a section."""
    value = field.examples[0] if field.examples else field.default
    if isinstance(value, list | tuple) and value and all(isinstance(entry, str | int | float) for entry in value):
        return f"[{', '.join(map(_in_yaml, value))}]"
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""
    return _in_yaml(value) if is_plain else None


def _in_yaml(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def field_at(model: type[BaseModel], place: Iterable[int | str]) -> FieldInfo | None:
    """The innermost field at this place, as pydantic states it, with the names of types that it tried; None: none."""
    models, found = [model], None
    for key in place:
        having = [one for one in models if key in one.model_fields]
        if having:
            found = having[0].model_fields[str(key)]
            models = list(_models(found.annotation, found.metadata))
        else:
            named = [one for one in models if key in (one.__name__, _tag(one))]
            models = named or models
    return found


def _tag(model: type[BaseModel]) -> object:
    return model.model_fields["name"].default if "name" in model.model_fields else None


def _models(annotation: Any, marks: Iterable[Any]) -> Iterator[type[BaseModel]]:
    """The models in an annotation and its marks: registered ones before their base."""
    for mark in marks:
        if isinstance(mark, OneOf):
            yield from mark.models
    if isclass(annotation) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part, [part])
