"""The output of `fedflat methods`: the catalog, the components for free compositions, and one method in detail.

The equations are the docstrings of the components' modules, and of user-defined components. Costs are measured in two
rounds of a small run.
"""

import inspect
import re
import sys
from collections.abc import Iterable
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from fedflat.bench.code.user_code import failure
from fedflat.bench.engine.method_costs import example, measured_costs
from fedflat.bench.files.text_table import aligned
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.compose import SLOTS
from fedflat.bench.methods.marks import Neutral, Scheduled, has_mark, search_of
from fedflat.bench.methods.recipe import Components, Recipe
from fedflat.bench.methods.released import RELEASES, Release
from fedflat.bench.methods.schedules import SCHEDULES
from fedflat.bench.methods.swa import SWA
from fedflat.bench.methods.user_file import KIND
from fedflat.bench.tuning.ranges import of_training
from fedflat.named_method import NamedMethod

SYMBOLS = {
    "t": "number of the round",
    "N": "number of clients",
    "S": "set of the active clients of the round",
    "M": "number of the active clients",
    "p_i": "weight of client i in the mean over the active clients; the weights sum to 1",
    "w^t": "global model at the beginning of round t",
    "w": "model of a client during its local steps, which begin at w^t",
    "w_i⁺": "model of client i after its local steps",
    "Δ_i": "update of client i: w_i⁺ − w^t",
    "Δ": "mean update: Σ p_i Δ_i",
    "K_i": "number of local steps of client i",
    "η_t": "local learning rate in round t",
    "η_{t,k}": "local learning rate in step k of round t; η_t, unless the rate falls within a round",
    "η_g": "learning rate of the server",
    "F_i": "loss of client i",
    "ξ": "mini-batch of the local step",
    "δ": "perturbation: the gradient is computed at w + δ",
    "g₁": "gradient of the mini-batch at w",
    "g": "gradient of the mini-batch at w + δ",
    "q": "direction of the local step; without momentum, w ← w − η_t (clip(q) + ωw), where ω is the weight decay",
    "unit(v)": "v/‖v‖, and 0 for v = 0",
    "←": "the variable gets a new value",
}
"""The meaning of the symbols that occur in several components; a docstring defines the other ones that it uses."""

_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def overview() -> str:
    """One line per method with components and hyper-parameters; then all components for free compositions."""
    rows: list[tuple[str, ...]] = [("method", "perturbation", "correction", "server", "loss", "takes")]
    for entry in CATALOG.values():
        names = [component.name for component in entry.components.by_slot().values()]
        rows.append((entry.name, *names, ", ".join(entry.hyperparameters) or "-"))
    return "\n".join(
        [
            *aligned(rows),
            "",
            "components that can be combined freely:",
            *(f"  {slot}: {', '.join(choices)}" for slot, choices in SLOTS.items()),
        ]
    )


def describe(name: str) -> str:
    """One method: components with equations, hyper-parameters, costs, and variants of released codes.

    `name` is a name of the catalog, the path of a method file, a method of an experiment (EXPERIMENT:LABEL), or `swa`,
    which every method can use.
    """
    if name == "swa":
        fields = [f"  swa.{key}: {_field(field)}" for key, field in SWA.model_fields.items()]
        return "\n".join([*_equations(SWA), "", *_legend(_equations(SWA)), "", *fields])
    named = NamedMethod.of(name)
    entry = named.recipe
    lines = [f"{entry.title} ({entry.name}): {entry.citation}", f"aggregation: {entry.aggregation}"]
    for slot, component in entry.components.by_slot().items():
        if slot != "loss" or component is not Components().loss:
            lines += ["", f"{slot}: {component.name}", *_equations(component)]
    lines += ["", *_legend(lines)]
    lines += ["", "hyper-parameters:" if entry.hyperparameters else "hyper-parameters: none"]
    for key, field in entry.hyperparameters.items():
        here = f"; here {named.values[key]}" if key in named.values else ""
        lines.append(f"  {key}: {_field(field)}{here}")
    lines += [f"  swa: {', '.join(SWA.model_fields)}: averages models on the server, see fedflat methods swa"]
    if any(has_mark(field, Scheduled) for field in entry.hyperparameters.values()):
        lines += [f"  schedules: by hyper-parameter, how it changes over rounds: {', '.join(SCHEDULES)}"]
    lines += [f"  {_rates(entry)}"]
    lines += ["", "costs, measured in a small run (in model sizes):", *(f"  {line}" for line in _costs(named))]
    releases = RELEASES.get(entry.name, {}) if entry is CATALOG.get(entry.name) else {}
    if not releases:
        lines += ["", "no released code is known: the only variant is published"]
    for variant, release in releases.items():
        lines += ["", *_released(variant, release)]
    return "\n".join(lines)


def _equations(cls: type) -> list[str]:
    """The docstring of the class's module and, for a user-defined component, of the class."""
    texts = [sys.modules[cls.__module__].__doc__, None if cls.__module__.startswith("fedflat.") else cls.__doc__]
    return [f"  {line}".rstrip() for text in texts if text for line in inspect.cleandoc(text).splitlines()]


def _legend(lines: Iterable[str]) -> list[str]:
    """The symbols that occur in these lines, with their meaning."""
    text = "\n".join(lines)
    return ["symbols:", *aligned([(f"  {name}", meaning) for name, meaning in SYMBOLS.items() if _occurs(name, text)])]


def _occurs(symbol: str, text: str) -> bool:
    """Whether the text contains the symbol, and not only a longer symbol with the same letters."""
    name, bracket, _ = symbol.partition("(")
    end = r"\(" if bracket else r"(?![\w^⁺̄])"
    return re.search(rf"(?<![\w^_.]){re.escape(name)}{end}", text) is not None


def _number(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def _field(field: FieldInfo) -> str:
    """Meaning, range, default and neutral value of a hyper-parameter."""
    bounds = [
        f"{sign} {_number(getattr(m, k))}" for m in field.metadata for k, sign in _BOUNDS.items() if hasattr(m, k)
    ]
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    kind = getattr(field.annotation, "__name__", "number")
    allowed = " or ".join(map(str, choices)) or " and ".join(bounds) or kind
    default = "required" if field.is_required() else f"default {field.default!r}"
    changing = "; can follow a schedule" if has_mark(field, Scheduled) else ""
    neutral = "".join(f"; neutral {mark.value}" for mark in field.metadata if isinstance(mark, Neutral))
    search = search_of(field)
    searched = "" if search is None else f"; tuned over {search}"
    return f"{field.description or ''} ({allowed}; {default}{neutral}{searched}{changing})".lstrip()


def _rates(entry: Recipe) -> str:
    """The fields of `training` that `fedflat tune` searches for the method."""
    try:
        rates = of_training(entry.build(example(entry)))
    except UserError as error:
        return f"tuned rates are not known: {error}"
    return "tuned, too: " + "; ".join(f"{place} over {search}" for place, search in rates.items())


def _costs(named: NamedMethod) -> list[str]:
    """The costs in words; a `UserError` if the code of the method's file fails."""
    entry, file = named.recipe, named.file
    try:
        costs = measured_costs(entry, {**example(entry), **named.values})
    except UserError as error:
        return [f"not measured: {error}; required hyper-parameters are set to their examples=[...]"]
    except Exception as error:  # user-defined methods may fail in any way
        if file is None:
            raise
        raise failure(file, KIND, error) from None
    return [
        f"received by a client per round: {costs['download']:.2f}, sent: {costs['upload']:.2f}",
        f"stored by each client: {costs['client_state']:.2f}, by the server: {costs['server_state']:.2f}",
        f"gradients per local step: {costs['gradients']:g}",
        *(
            f"forward passes of a teacher per local step: {costs[name]:g}"
            for name in ("teacher_passes",)
            if name in costs
        ),
    ]


def _released(variant: str, release: Release) -> list[str]:
    switches = {**release.hyperparameters, **{f"swa.{key}": value for key, value in release.swa.items()}}
    switches |= release.training
    switches |= {key: v for key, v in (("sampling", release.sampling), ("report", release.report)) if v is not None}
    lines = [f"variant released:{variant} ({release.repository}):"]
    lines.append("  " + ", ".join(f"{key} {value}" for key, value in switches.items()))
    lines += [
        f"  {key} {value}, even if the experiment's file sets another value: an error of the released code"
        for key, value in release.faults.items()
    ]
    return [*lines, *(f"  not covered: {line}" for line in release.not_covered)]
