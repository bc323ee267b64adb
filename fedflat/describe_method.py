"""What `fedflat methods` prints: the catalog, the parts to compose, and one method in detail.

Equations come from the parts' own docstrings, costs from two rounds that are really run.
"""

import inspect
import sys
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from bench.engine.method_costs import example, measured_costs
from bench.files.text_table import aligned
from bench.input.errors import UserError
from bench.methods.catalog import CATALOG, recipe
from bench.methods.compose import SLOTS
from bench.methods.recipe import Components, Recipe
from bench.methods.released import RELEASES, Release
from bench.methods.swa import SWA
from bench.methods.user_file import recipe_from_file


def overview() -> str:
    """All methods, a line each: name, parts, hyper-parameters; then all parts for free compositions."""
    rows: list[tuple[str, ...]] = [("method", "perturbation", "correction", "server", "loss", "takes")]
    for entry in CATALOG.values():
        names = [part.name for part in entry.components.by_slot().values()]
        rows.append((entry.name, *names, ", ".join(entry.hyperparameters) or "-"))
    symbols = (
        "w^t global model, w_i⁺ local model after its steps, Δ_i = w_i⁺ − w^t, K_i local steps, η_t local rate,",
        "N clients, M active ones S, p_i their weights; g and g₁ gradients on the mini-batch ξ of the step,",
        "unit(v) = v/‖v‖ and 0 for v = 0; q the direction of the step w ← w − η_t (clip(q) + ωw); ← and ⁺ new values",
    )
    parts = [f"{slot}: {', '.join(sorted(choices))}" for slot, choices in SLOTS.items()]
    return "\n".join(
        [
            *aligned(rows),
            "",
            "parts that can be combined freely:",
            *(f"  {line}" for line in parts),
            "",
            "symbols of fedflat methods NAME:",
            *(f"  {line}" for line in symbols),
        ]
    )


def describe(name: str) -> str:
    """One method, by its name or the path of a user's file: parts with equations, hyper-parameters, costs, releases.

    `swa` explains the wrapper that any method can have.
    """
    if name == "swa":
        fields = [f"  swa.{key}: {_field(field, NEUTRAL.get(key))}" for key, field in SWA.model_fields.items()]
        return "\n".join([*_indented(sys.modules[SWA.__module__].__doc__ or ""), "", *fields])
    entry = recipe_from_file(Path(name)) if name.endswith(".py") else recipe(name)
    known = entry is CATALOG.get(entry.name)
    lines = [f"{entry.title} ({entry.name}): {entry.source}", f"aggregation: {entry.aggregation}"]
    for slot, part in entry.components.by_slot().items():
        if slot != "loss" or part is not Components().loss:
            lines += ["", f"{slot}: {part.name}", *_indented(sys.modules[part.__module__].__doc__ or "")]
    lines += ["", "hyper-parameters:" if entry.hyperparameters else "hyper-parameters: none"]
    neutral = NEUTRAL if known else {}  # a user's own names mean what the user means
    lines += [
        f"  {key}: {_field(field, neutral.get(f'{entry.name}.{key}', neutral.get(key)))}"
        for key, field in entry.hyperparameters.items()
    ]
    lines += [f"  swa: {', '.join(SWA.model_fields)}: averages models on the server, see fedflat methods swa"]
    lines += ["", "costs, counted in a small run (in model sizes):", *(f"  {line}" for line in _costs(entry))]
    releases = RELEASES.get(entry.name, {}) if known else {}
    lines += [] if releases else ["", "no released code is known: there is no variant but published"]
    for variant, release in releases.items():
        lines += ["", *_released(variant, release)]
    return "\n".join(lines)


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in inspect.cleandoc(text).splitlines()]


_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}

NEUTRAL: dict[str, str] = {
    "rho": "0", "fedprox.lam": "0", "fedacg.lam": "0", "beta": "0", "mu": "0", "kappa": "0",
    "T_D": "infinity", "correction_weight": "0", "eta_psi": "0", "weight_scl": "0", "weight_pen": "0", "alpha": "1",
    "fedspeed.alpha": "0",
    "lr_end": "the local rate", "c": "0", "start": "T",
}  # fmt: skip
"""Where a hyper-parameter does nothing, by its canonical name; by method and name where methods differ."""


def _field(field: FieldInfo, neutral: str | None) -> str:
    bounds = [f"{sign} {getattr(r, k):g}" for r in field.metadata for k, sign in _BOUNDS.items() if hasattr(r, k)]
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    kind = getattr(field.annotation, "__name__", "number")
    allowed = " or ".join(map(str, choices)) or " and ".join(bounds) or kind
    default = "required" if field.is_required() else f"default {field.default!r}"
    ends = f"; neutral {neutral}" if neutral is not None else ""
    return f"{field.description or ''} ({allowed}; {default}{ends})".lstrip()


def _costs(entry: Recipe) -> list[str]:
    try:
        costs = measured_costs(entry, example(entry))
    except Exception as error:  # a user's own method may fail in any way
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        reason = " ".join(str(error).split())
        return [f"not counted: {kind}{reason}; required hyper-parameters are tried with their examples=[...]"]
    return [
        f"received by a client per round: {costs['download']:.2f}, sent: {costs['upload']:.2f}",
        f"kept by each client: {costs['client_state']:.2f}, by the server: {costs['server_state']:.2f}",
        f"gradients per local step: {costs['gradients']:g}",
    ]


def _released(variant: str, release: Release) -> list[str]:
    switches = {**release.hyperparameters, **{f"swa.{key}": value for key, value in release.swa.items()}}
    switches |= release.training
    switches |= {key: v for key, v in (("sampling", release.sampling), ("report", release.report)) if v is not None}
    lines = [f"variant released:{variant} ({release.code}):"]
    lines.append("  " + ", ".join(f"{key} {value}" for key, value in switches.items()))
    lines += [f"  {key} {value}, whatever is given: a fault of the code" for key, value in release.faults.items()]
    return [*lines, *(f"  not covered: {line}" for line in release.not_covered)]
