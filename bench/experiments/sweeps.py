"""Sweeps: a list of values of a hyper-parameter, or of a field of `training`, becomes one method for each value."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from fedflat.bench.experiments.schema import SWA_SUFFIX, MethodEntry
from fedflat.bench.experiments.sections.training import Training, with_training
from fedflat.bench.input.bounds import MOST_ENTRIES
from fedflat.bench.input.errors import UserError

Data = dict[str, Any]
"""Keys and values of an experiment's file."""

SECTIONS = ("hyperparameters", "training")
"""The sections of a method's entry whose values take lists."""


@dataclass(frozen=True)
class SweptMethod:
    """One method of a sweep: `base`, the label of its entry in the file, and its own values by section and name."""

    base: str
    values: Mapping[str, Mapping[str, Any]]

    @property
    def axes(self) -> dict[str, Any]:
        """The values by name."""
        return {name: value for values in self.values.values() for name, value in values.items()}

    @property
    def title(self) -> str:
        """The values in words, such as rho = 0.05."""
        return ", ".join(f"{name} = {in_label(value)}" for name, value in self.axes.items())

    @property
    def label(self) -> str:
        """The base's label followed by names and values; the ending of SWA stays at the end."""
        values = "".join(f"-{name}-{in_label(value)}" for name, value in self.axes.items())
        ending = SWA_SUFFIX if self.base.endswith(SWA_SUFFIX) else ""
        return f"{self.base.removesuffix(SWA_SUFFIX)}{values}{ending}"

    def without(self, axis: str) -> "SweptMethod":
        """The same values without those of one name."""
        kept = {section: {n: v for n, v in values.items() if n != axis} for section, values in self.values.items()}
        return SweptMethod(self.base, kept)


def in_label(value: Any) -> str:
    """A value as text in labels and headings: the shortest digits that give the same number."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value).removesuffix(".0")


def expanded(data: Data) -> tuple[Data, dict[str, SweptMethod]]:
    """An experiment's file with an entry for each value of a sweep, and the methods of sweeps by label.

    The label of the entry is followed by name and value, such as fedsam-rho-0.05. Several lists give all combinations.
    A list in the experiment's `training` sweeps every method that has no value of its own. Values that are lists by
    themselves, such as `augmentation`, stay as they are. A `UserError` if a part gives another value of a shared list.
    """
    methods = data.get("methods")
    if not isinstance(methods, dict):
        return data, {}
    common = training if isinstance(training := data.get("training"), dict) else {}
    shared = _axes("training", common, Training.model_fields)
    entries: Data = {}
    swept: dict[str, SweptMethod] = {}
    labels: dict[str, list[str]] = {}
    for label, entry in methods.items():
        for one, of_sweep in _methods_of(str(label), entry, shared):
            key = label if of_sweep is None else of_sweep.label
            if key in entries or (of_sweep is not None and key in methods):
                raise UserError(f"methods: two methods have the label {key}")
            entries[key] = one
            labels.setdefault(str(label), []).append(key)
            if of_sweep is not None:
                swept[key] = of_sweep
    if not swept and not shared:
        return data, {}
    data = {**data, "methods": entries}
    if shared:  # no method is left that needs a value
        data["training"] = {**common, **{name: values[0] for name, values in shared.items()}}
    if isinstance(parts := data.get("parts"), dict):
        for name, part in parts.items():
            _check_part(str(name), part, shared, methods)
        data["parts"] = {name: _in_part(part, labels) for name, part in parts.items()}
    return data, swept


def _methods_of(label: str, entry: Any, shared: Mapping[str, list[Any]]) -> list[tuple[Any, SweptMethod | None]]:
    """The entries of a label, each with its values if it belongs to a sweep."""
    if not isinstance(entry, dict | None):
        return [(entry, None)]
    entry = entry or {}
    sections = {name: entry.get(name) for name in SECTIONS}
    if any(not isinstance(section, dict | None) for section in sections.values()):
        return [(entry, None)]
    own, training = (sections[name] or {} for name in SECTIONS)
    where = f"methods.{label}"
    axes = [
        ("hyperparameters", *axis)
        for axis in _axes(f"{where}.hyperparameters", own, _hyperparameters(label, entry)).items()
    ]
    of_training = {name: values for name, values in shared.items() if name in _inherited(shared, training)}
    of_training |= _axes(f"{where}.training", training, Training.model_fields)
    axes += [("training", *axis) for axis in of_training.items()]
    if not axes:
        return [(entry, None)]
    if (count := math.prod(len(values) for *_, values in axes)) > MOST_ENTRIES:
        raise UserError(f"{where} has {count:,} combinations of values (allowed: {MOST_ENTRIES:,})")
    found: list[tuple[Any, SweptMethod | None]] = []
    for combination in itertools.product(*(values for *_, values in axes)):
        chosen: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
        for (section, name, _), value in zip(axes, combination, strict=True):
            chosen[section][name] = value
        one = {**entry, **{name: {**(sections[name] or {}), **chosen[name]} for name in SECTIONS}}
        if not any(key in entry for key in ("name", "file", "perturbation", "correction", "server", "loss")):
            one["name"] = label.removesuffix(SWA_SUFFIX)
        found.append((one, SweptMethod(label, chosen)))
    return found


def _inherited(shared: Mapping[str, list[Any]], training: Mapping[str, Any]) -> set[str]:
    """The names of shared lists that stay where `training` has values of its own: epochs also replace steps."""
    return set(with_training(shared, training)) - set(training)


def _axes(where: str, section: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> dict[str, list[Any]]:
    """The lists of single values in a section, by name, where a field has one value.

    Values are those that a run has: 1e-2, which YAML reads as text, is 0.01. A `UserError` if two are the same; wrong
    ones, and unknown names, stay and are reported with the configuration. `where`: the section, for messages.
    """
    axes: dict[str, list[Any]] = {}
    for name, given in section.items():
        if name not in fields or _mentions_a_list(fields[name].annotation) or not isinstance(given, list) or not given:
            continue
        if any(isinstance(value, dict | list) for value in given):
            continue
        values = _converted(given, fields[name])
        if len(set(map(in_label, values))) < len(values):
            raise UserError(f"{where}.{name}: a value is listed twice in {given}")
        # Some fields store a value such as 0 as null; its label is that of the given one.
        axes[name] = [one if value is None else value for one, value in zip(given, values, strict=True)]
    return axes


def _converted(given: list[Any], field: FieldInfo) -> list[Any]:
    """The values as the field has them; a wrong one as it is given."""
    adapter, values = TypeAdapter(field.rebuild_annotation()), []
    for value in given:
        try:
            found = adapter.validate_python(value)
        except (ValidationError, UserError):
            found = value
        values.append(value if isinstance(value, bool) and not isinstance(found, bool) else found)
    return values


def _hyperparameters(label: str, entry: Data) -> Mapping[str, FieldInfo]:
    """The hyper-parameters of a method; none of a wrong entry, which is reported later."""
    try:
        recipe = MethodEntry.parse(entry).choice(label).recipe
    except UserError:
        return {}
    return {**recipe.components.separate(), **recipe.hyperparameters}


def _check_part(name: str, part: Any, shared: Mapping[str, list[Any]], methods: Mapping[Any, Any]) -> None:
    """A `UserError` if a part has another value of a shared list that sweeps one of its methods.

    The list would have no effect there, although the methods' labels name its values.
    """
    training = part.get("training") if isinstance(part, dict) else None
    if not isinstance(training, dict):
        return
    only = part.get("only")
    for label, given in methods.items():
        entry = given if isinstance(given, dict) else {}
        own = entry.get("training") or {}
        if name not in (entry.get("parts") or (name,)) or label not in (only or (label,)) or not isinstance(own, dict):
            continue
        for axis in sorted(_inherited(shared, own) - _inherited(shared, training)):
            raise UserError(
                f"training.{axis} has a list of values, and parts.{name}.training another value for {label} "
                "(allowed: one of both; a list in a method's entry with parts: [...] is for these parts only)"
            )


def _mentions_a_list(annotation: Any) -> bool:
    kinds = (list, tuple, set, frozenset)
    return annotation in kinds or get_origin(annotation) in kinds or any(map(_mentions_a_list, get_args(annotation)))


def _in_part(part: Any, labels: Mapping[str, list[str]]) -> Any:
    """A part whose entries and selections of methods are those of all methods of a sweep."""
    if not isinstance(part, dict):
        return part
    part = dict(part)
    if isinstance(methods := part.get("methods"), dict):
        part["methods"] = {one: entry for label, entry in methods.items() for one in labels.get(str(label), [label])}
    if isinstance(only := part.get("only"), list):
        part["only"] = [one for label in only for one in labels.get(str(label), [label])]
    return part


WITH_LISTS = tuple(name for name, field in Training.model_fields.items() if _mentions_a_list(field.annotation))
"""The fields of `training` whose values are lists."""
