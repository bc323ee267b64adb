"""The base class of all configurations: immutable, validated, without unknown keys."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, LiteralString, Self, get_args, get_origin
from weakref import WeakKeyDictionary

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from fedflat.bench.input.bounds import LONGEST_NAME
from fedflat.bench.input.errors import SeveralMistakesError, UserError, all_mistakes, distinct, one_line, unknown
from fedflat.bench.input.field_words import aliases, described, field_at, keys

NAME = rf"^[a-z0-9_]{{1,{LONGEST_NAME}}}$"
"""The pattern of experiment names, which are part of paths and of Snakemake's targets."""

LABEL = rf"^[A-Za-z0-9][A-Za-z0-9_.+-]{{0,{LONGEST_NAME - 1}}}$"
"""The pattern of labels, which are part of paths and of Snakemake's wildcards."""

REPORT = r"^(last|best|mean_last_[1-9][0-9]{0,6})$"
"""The pattern of `report`, the value of a run that tables show."""

_IN_WORDS = {
    NAME: f"lower-case letters, digits and '_', at most {LONGEST_NAME}",
    LABEL: f"letters, digits, '_', '.', '+' and '-', at most {LONGEST_NAME}, the first one a letter or a digit",
    REPORT: "last, best, and mean_last_N, such as mean_last_100",
}


class _Collects(list[UserError]):
    """The context of a validation that finds all errors: those that do not stop it."""


def _collected(data: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """The validated data; within `parse`, a `UserError` is one of the errors that pydantic collects."""
    try:
        return handler(data)
    except UserError as error:
        raise collected(error, info) from None


def collected(error: UserError, info: ValidationInfo) -> Exception:
    """The error as validators of a field raise it: within `parse`, pydantic collects it and validates other fields."""
    if not isinstance(info.context, _Collects):
        return error
    return PydanticCustomError(_USER_ERROR, "{text}", {"text": str(error), "error": error})


_USER_ERROR: LiteralString = "user_error"


class Frozen(BaseModel):
    """A frozen pydantic model. An unknown key is an error that suggests the nearest known key."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    in_words: ClassVar[str] = ""
    """What the model describes, for messages; empty: its registered name, or the name of the class, says it."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, Mapping):
            fields = cls.model_fields
            strange = [key for key in data if key not in fields and key not in aliases(fields)]
            if strange:
                errors = [unknown(f"key of {cls.words()}", key, keys(cls), cls.meant(key)) for key in strange]
                if not isinstance(info.context, _Collects):
                    raise errors[0]
                info.context.extend(errors)
                data = {key: value for key, value in data.items() if key not in strange}
            if cls not in _KINDS:
                _KINDS[cls] = kinds(fields)
            check_bools(_KINDS[cls], data, cls.words)
        return data

    @classmethod
    def meant(cls, key: str) -> str | None:
        """The key in another section that people mean by an unknown one; None: the nearest known key is suggested."""
        return None

    @classmethod
    def words(cls) -> str:
        """What the model describes, for messages: `in_words`, or a name that users know, such as dirichlet."""
        name = cls.model_fields["name"].default if "name" in cls.model_fields else getattr(cls, "name", None)
        return cls.in_words or (name if isinstance(name, str) else _class_in_words(cls))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema, in which `parse` finds the errors of all parts of the data, and not only the first."""
        return core_schema.with_info_wrap_validator_function(_collected, handler(source))

    @classmethod
    def parse(cls, data: Mapping[str, Any], where: str = "") -> Self:
        """The validated model. A mistake is a `UserError` of one line that begins with `where`, e.g. a file's name;
        several are one error with a line for each."""
        found, mistakes = _Collects(), list[str]()
        try:
            model = cls.model_validate(dict(data), context=found)
        except ValidationError as error:
            mistakes = explain(error, data, cls)
        typos = all_mistakes(found)
        mistakes = [text for text in mistakes if not _is_typed_wrongly(text, typos)]
        mistakes = list(distinct([*typos, *mistakes]))
        if not mistakes:
            return model
        if len(mistakes) > 1:
            raise SeveralMistakesError(where or cls.words(), mistakes)
        raise UserError(f"{where}: {mistakes[0]}" if where else mistakes[0])


def _is_typed_wrongly(mistake: str, typos: list[str]) -> bool:
    """Whether a key is missing because it is one of the unknown keys."""
    keys = [key.rpartition(".")[2] for key in mistake.removesuffix(" is missing").split(" or ")]
    meant = any(f"; did you mean '{key}'?" in typo for key in keys for typo in typos)
    return mistake.endswith(" is missing") and meant


def _class_in_words(cls: type) -> str:
    """For example, "table layout" for TableLayout."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", cls.__name__)
    return " ".join(part if len(part) > 1 and part.isupper() else part.lower() for part in parts)


@dataclass(frozen=True)
class _Kind:
    """Whether a field is a flag, or a number; and the field itself, for messages."""

    is_flag: bool
    is_number: bool
    field: FieldInfo


def kinds(fields: Mapping[str, FieldInfo]) -> dict[str, _Kind]:
    """What `check_bools` needs to know of fields."""
    found = {}
    for key, field in fields.items():
        has_bool = _mentions(field.annotation, bool)
        is_flag = has_bool and not _mentions(field.annotation, int, float, str)
        found[key] = _Kind(is_flag, not has_bool and _mentions(field.annotation, int, float), field)
    return found


_KINDS: WeakKeyDictionary[type[BaseModel], dict[str, _Kind]] = WeakKeyDictionary()
"""Those of each model's fields: an experiment of a paper is validated in thousands of parts."""


def check_bools(known: Mapping[str, _Kind], data: Mapping[str, Any], owner: Callable[[], str]) -> None:
    """A `UserError` if true or false is given for a number, or anything else for a flag: pydantic would convert them,
    such as true to 1, and no to false."""
    for key, value in data.items():
        if key not in known:
            continue
        values = value if isinstance(value, list | tuple) else [value]
        if known[key].is_number and any(isinstance(v, bool) for v in values):
            what = described(known[key].field, value)
            raise UserError(f"{owner()}: {key} = {value!r}: Input should be a number, not true or false{what}")
        if known[key].is_flag and not isinstance(value, bool | None):
            what = described(known[key].field, value)
            raise UserError(f"{owner()}: {key} = {value!r} (allowed: true or false){what}")


def _mentions(annotation: Any, *types: type) -> bool:
    """Whether the annotation contains one of the types, or a literal of one."""
    if annotation in types or type(annotation) in types:
        return True
    return any(_mentions(part, *types) for part in get_args(annotation))


def explain(error: ValidationError, data: Any = None, model: type[BaseModel] | None = None) -> list[str]:
    """The errors that pydantic found in `data` (None: unknown), each as one line, and one for each value.

    A message about the value of a field of `model` ends with what the field is, and an example.
    """
    found: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for one in error.errors():
        place = one["loc"] if one["type"] == "missing" or data is None else _place(one["loc"], data)
        empty = one["type"] == "too_short"  # because its entries were refused
        if not (empty and any(known[: len(place)] == place for known in found)):
            found.setdefault(place, []).append(one)
    texts: list[str] = []
    for place, errors in found.items():
        if not _are_of_alternatives(place, errors):
            texts += _explained(errors[0], model)
        elif not any(other[: len(place)] == place != other for other in found):  # else one of the types has its keys
            types = " or ".join(_EXPECTED[one["type"]] for one in errors)
            what = _described(errors[0], model)
            texts.append(one_line(f"{_with_value(errors[0], place)} (allowed: {types}){what}"))
    return list(dict.fromkeys(texts))


def _are_of_alternatives(place: tuple[int | str, ...], errors: Iterable[ErrorDetails]) -> bool:
    """Whether a value has none of several types, such as text or a mapping."""
    return all(one["type"] in _EXPECTED and one["loc"][:-1] == place and one["loc"][-1] != "[key]" for one in errors)


def _with_value(error: ErrorDetails, place: Iterable[int | str]) -> str:
    """The keys of a value, joined by points, and the value itself unless it has several lines."""
    given = "" if isinstance(error["input"], dict | list) else f" = {as_in_yaml(error['input'])}"
    return f"{'.'.join(str(key) for key in place)}{given}"


def as_in_yaml(value: object) -> str:
    """A value for messages."""
    return "null" if value is None else repr(value)


_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "path_type": "the path of a file or folder",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys and values",
    "model_attributes_type": "a mapping of keys and values",
}
"""What a value should be, by pydantic's type of the error."""


def _place(loc: tuple[int | str, ...], data: Any) -> tuple[int | str, ...]:
    """The keys and indices of a value, without the names of types that pydantic tried."""
    keys: list[int | str] = []
    for key in loc:
        has_key = isinstance(data, Mapping) and key in data
        if has_key or (isinstance(data, list | tuple) and isinstance(key, int) and key < len(data)):
            keys.append(key)
            data = data[key]
    return tuple(keys)


_QUOTES = " '"


def _explained(first: ErrorDetails, model: type[BaseModel] | None) -> list[str]:
    """One error of pydantic in words."""
    if first["type"] == _USER_ERROR:
        return all_mistakes([first["ctx"]["error"]])
    what = "" if first["type"] in _SAYS_ITSELF else _described(first, model)
    return [one_line(f"{_in_words(first)}{what}")]


def _described(error: ErrorDetails, model: type[BaseModel] | None) -> str:
    """What the field of a value is, and an example."""
    return "" if model is None else described(field_at(model, error["loc"]), error["input"])


def _in_words(first: ErrorDetails) -> str:
    place = tuple(part for part in first["loc"] if not _TYPE.fullmatch(str(part)))
    kind, context = first["type"], first.get("ctx", {})
    where, given = ".".join(str(part) for part in place), _with_value(first, place)
    if kind in _MISSING:
        return _MISSING[kind].format(where=where, key=str(context.get("discriminator")).strip(_QUOTES))
    if kind == "union_tag_invalid":
        allowed = [tag.strip(_QUOTES) for tag in context["expected_tags"].split(",")]
        return str(unknown(where, context["tag"], allowed))
    if kind == "model_type":
        return f"{given}{_keys(where, context['class_name'], first['input'])}"
    if kind in ("dict_type", "model_attributes_type"):
        return f"{given} (allowed: {_EXPECTED[kind]})"
    if place and place[-1] == "[key]":
        given = f"key of {_with_value(first, place[:-2])}"
    return f"{given}: {message_of(first)}"


def message_of(first: ErrorDetails) -> str:
    """What the value should be."""
    kind, context = first["type"], first.get("ctx", {})
    if kind in _EXPECTED:
        return f"Input should be {_EXPECTED[kind]}"
    if kind in _BOUNDS:
        bound, key = _BOUNDS[kind]
        return f"it should have at {bound} {context[key]:,} {'entry' if context[key] == 1 else 'entries'}"
    if kind == "string_pattern_mismatch" and context["pattern"] in _IN_WORDS:
        return f"allowed are {_IN_WORDS[context['pattern']]}"
    return first["msg"]


_TYPE = re.compile(r"(dict|list|tuple|literal|function-[a-z]+)\[.*\]", re.DOTALL)
"""A type that pydantic tried, among the keys of a value."""

_SAYS_ITSELF = {"missing", "union_tag_not_found", "union_tag_invalid"}
_MISSING = {"missing": "{where} is missing", "union_tag_not_found": "{where}.{key} is missing"}
_BOUNDS = {"too_short": ("least", "min_length"), "too_long": ("most", "max_length")}


def _keys(where: str, class_name: str, given: object) -> str:
    """For a value that is no mapping: the keys of the model with this name, and the one that has such values."""
    named = [model for model in _subclasses(Frozen) if model.__name__ == class_name]
    if not named:  # an entry of a file of results
        return " (allowed: a mapping of keys and values)"
    fields = named[0].model_fields
    meant = [key for key, field in fields.items() if isinstance(given, str) and given in literals(field.annotation)]
    hint = f"; did you mean {where}.{meant[0]} = {given}?" if meant else ""
    return f"{hint} (allowed: a mapping with the keys {', '.join(sorted(keys(named[0])))})"


def _subclasses(cls: type[Frozen]) -> Iterator[type[Frozen]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def literals(annotation: Any) -> set[object]:
    """The values of all literals in the annotation."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return {value for part in get_args(annotation) for value in literals(part)}
