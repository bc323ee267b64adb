"""What `fedflat methods` prints: the catalog, and one method in detail, from the components' own docstrings."""

import inspect
import sys
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from bench.methods.catalog import CATALOG, Recipe, recipe


def overview() -> str:
    """All methods, a line each: name, parts, hyper-parameters."""
    rows = [("method", "perturbation", "correction", "server", "takes")]
    for entry in CATALOG.values():
        perturbation, correction, server = (vars(part)["name"] for part in entry.parts)
        rows.append((entry.name, perturbation, correction, server, ", ".join(entry.takes) or "-"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def describe(name: str) -> str:
    """One method: its three parts with their equations, its hyper-parameters with range and default, its state."""
    entry = recipe(name)
    lines = [f"{entry.title} ({entry.name}): {entry.source}", f"aggregation: {entry.aggregation}"]
    for slot, part in zip(("perturbation", "correction", "server"), entry.parts, strict=True):
        lines += ["", f"{slot}: {vars(part)['name']}", *_indented(sys.modules[part.__module__].__doc__ or "")]
    lines += ["", "hyper-parameters:" if entry.takes else "hyper-parameters: none"]
    lines += [f"  {key}: {_field(field)}" for key, field in entry.hyperparameters.items()]
    return "\n".join([*lines, "", *_state(entry)])


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in inspect.cleandoc(text).splitlines()]


_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def _field(field: FieldInfo) -> str:
    bounds = [f"{sign} {getattr(r, k):g}" for r in field.metadata for k, sign in _BOUNDS.items() if hasattr(r, k)]
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    kind = getattr(field.annotation, "__name__", "number")
    allowed = " or ".join(map(str, choices)) or " and ".join(bounds) or kind
    default = "required" if field.is_required() else f"default {field.default!r}"
    return f"{field.description} ({allowed}; {default})"


def _state(entry: Recipe) -> list[str]:
    client = ", ".join(name for part in entry.parts for name in part.client_state)
    server = ", ".join(name for part in entry.parts for name in part.server_state)
    return [f"kept by each client: {client or 'nothing'}", f"kept by the server: {server or 'nothing'}"]
