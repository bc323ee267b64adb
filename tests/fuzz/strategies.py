"""Strategies: values of a JSON schema, wrong values in any place, and real files with changes."""

import copy
import functools
import json
from collections.abc import Mapping
from typing import Any

import yaml
from hypothesis import strategies as st

from fedflat.bench.data.sources import SOURCES
from fedflat.bench.experiments.experiment import experiment_schema
from fedflat.bench.input.strict_yaml import load_yaml
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.models import MODELS

ODD = [
    None, True, False, 0, 1, -1, 10**6 + 1, 2**31, 2**63, 10**30, 0.0, -0.5, 1e-320, 1e308, 6.4e21, float("inf"),
    float("nan"), "", " ", "a\nb", "\x1b[31m", "é", "\ud800", "a/b", "..", "/dev/zero", "~nobody/x", "x" * 5000, "1e3",
    "null", "2021-99-99", [], {}, [[]], {"": {}}, {"a": None}, [0] * 2000, {"file": "/dev/zero"}, {1: 2}, {None: 0},
    "quick", "fedsam", "digits", "last", "dirichlet-0.1", [{}], {"name": "dirichlet"}, "a.b.c", b"bytes",
]  # fmt: skip
"""Values that stand where others are expected."""

PIECES = [
    "&a ", "*a", "<<: *a", "!!int ", "!!float abc", "!!python/object:os.system ", "[", "]", "{", "}", "[" * 60, ":",
    "? ", "- ", "\n", "\t", "'", '"', "#", "|", "0x_", "9" * 5000, "\0", "\u2028", "...", "---", ",", "\\x", "%YAML 9",
    "&a [*a]", "2021-99-99", "1:99:99", "=", "!", "@",
]  # fmt: skip
"""Pieces of YAML that are inserted into a text."""

junk = st.one_of(
    st.sampled_from(ODD).map(copy.deepcopy),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.recursive(st.sampled_from(ODD[:30]), lambda inner: st.lists(inner, max_size=3), max_leaves=5),
)

_SCHEMA = experiment_schema()
_KNOWN: Mapping[str, st.SearchStrategy[Any]] = {
    "dataset": st.sampled_from([*SOURCES, "digits", "digits", "digits"]),
    "model": st.sampled_from(sorted(MODELS)),
    "name": st.sampled_from(["mine", "fedavg", "fedsam"]),
    "extends": st.just("quick"),
    "title": st.just("η"),
    "where": st.just({"dirichlet-0.1": {"training": {"lr": 0.01}}}),
    "report": st.sampled_from(["last", "best", "mean_last_3"]),
    "evaluation_where": st.just({}),
    "chosen": st.just(["fedsam"]),
    "only": st.just(["fedsam"]),
    "participation": st.lists(
        st.sampled_from([{"active": 1}, {"sampling": "full"}, {"sampling": "bernoulli", "probability": 0.5}]),
        min_size=1,
        max_size=2,
    ),
    "seeds": st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True),
    "partition": st.lists(
        st.builds(
            lambda name, n: {"name": name, "clients": n, "alpha": 0.5},
            st.sampled_from(["dirichlet", "lda"]),
            st.integers(2, 9),
        ),
        min_size=1,
        max_size=2,
    ),
    **dict.fromkeys(("file", "perturbation", "correction", "server", "loss"), st.none()),
    "hyperparameters": st.dictionaries(
        st.sampled_from(["rho", "lam", "alpha", "rho_g", "swa", "eta_a", "W", "server.beta"]),
        st.one_of(st.floats(0, 1), st.integers(1, 9), st.just({"cycle": 2}), junk),
        max_size=3,
    ),
}
"""Values of keys whose type alone would hardly ever give a valid one."""


@st.composite
def experiments(draw: st.DrawFn) -> str:
    """The text of an experiment's file that fits the schema, except for a few values."""
    data = {"dataset": "digits", "model": "cnn_gn", **draw(_of_schema(_SCHEMA))}
    for _ in range(draw(st.integers(0, 2))):
        data = draw(_with_change(data))
    return text_of(data)


_loaded = functools.cache(load_yaml)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # of libyaml, which is several times as fast


def text_of(data: Any) -> str:
    """The YAML text of the data; text that YAML cannot hold, such as half a character, is escaped as in JSON."""
    try:
        return yaml.dump(data, Dumper=_DUMPER, allow_unicode=True, sort_keys=False)
    except (yaml.YAMLError, UnicodeError):
        return json.dumps(data, default=str, skipkeys=True)


def _of_schema(schema: Any, key: str = "") -> st.SearchStrategy[Any]:
    """The values of a part of the schema under a key. It is built once: Hypothesis examines each new strategy."""
    place = id(schema), key
    if place not in _BUILT:
        _BUILT[place] = _built(schema, key)
    return _BUILT[place]


_BUILT: dict[tuple[int, str], st.SearchStrategy[Any]] = {}


def _built(schema: Any, key: str) -> st.SearchStrategy[Any]:
    if key in _KNOWN and "const" not in schema:
        return _KNOWN[key]
    if not isinstance(schema, dict):
        return junk
    if "$ref" in schema:
        definition = _SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
        return st.deferred(lambda: _of_schema(definition, key))
    for alternatives in ("anyOf", "oneOf"):
        if alternatives in schema:
            return st.one_of([_of_schema(alternative, key) for alternative in schema[alternatives]])
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    return _of_type(schema)


def _of_type(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    types = {
        "integer": lambda: st.integers(least, min(most or 50, 50)),
        "number": lambda: st.floats(least, most, exclude_min="exclusiveMinimum" in schema, allow_nan=False),
        "string": lambda: st.sampled_from(["mine", "last", "4-of-20", "x", "\u00b5"]),
        "boolean": st.booleans,
        "array": lambda: st.lists(
            _of_schema(schema.get("items", True)), min_size=schema.get("minItems", 0), max_size=3
        ),
        "object": lambda: _object(schema),
    }
    return types.get(str(schema.get("type")), st.none)()


def _object(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    properties = schema.get("properties", {})
    values = {key: _of_schema(value, key) for key, value in properties.items()}
    required = [*schema.get("required", []), *(key for key, value in properties.items() if "const" in value)]
    optional = st.lists(st.sampled_from(sorted(properties)), max_size=3) if properties else st.just([])
    entries: st.SearchStrategy[dict[str, Any]] = st.just({})
    if "patternProperties" in schema or isinstance(schema.get("additionalProperties"), dict):
        entry = next(iter(schema.get("patternProperties", {"": schema.get("additionalProperties")}).values()))
        entries = st.dictionaries(st.sampled_from(sorted(CATALOG)), _of_schema(entry), min_size=1, max_size=3)

    @st.composite
    def given(draw: st.DrawFn) -> dict[str, Any]:
        return {key: draw(values[key]) for key in [*required, *draw(optional)]} | draw(entries)

    return given()


@st.composite
def changed(draw: st.DrawFn, texts: list[str]) -> str:
    """One of the texts of real files with one to three changes: of values, of keys, or of the text."""
    text = draw(st.sampled_from(texts))
    if draw(st.booleans()):
        for _ in range(draw(st.integers(1, 3))):
            at, length = draw(st.integers(0, len(text))), draw(st.sampled_from([0, 0, 1, 3, 200]))
            text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + length :]
        return text
    data = _loaded(text)
    for _ in range(draw(st.integers(1, 3))):
        data = draw(_with_change(data))
    return text_of(data)


@st.composite
def _with_change(draw: st.DrawFn, data: Any) -> Any:
    """A copy of the data with another value, another key or a missing entry in one place."""
    data = copy.deepcopy(data)
    places = list(_places(data))
    if not places:
        return draw(junk)
    holder, key = draw(st.sampled_from(places))
    match draw(_CHANGES):
        case "value":
            holder[key] = draw(junk)
        case "swap":
            other, there = draw(st.sampled_from(places))
            holder[key] = copy.deepcopy(other[there])
        case "missing":
            del holder[key]
        case "key":
            new = draw(st.sampled_from(["", "a\nb", "x" * 300, 3, None, True, *(k for _, k in places[:40])]))
            if isinstance(holder, dict):
                holder[new] = holder.pop(key)
    return data


_CHANGES = st.sampled_from(["value", "value", "swap", "key", "missing"])


def _places(data: Any) -> Any:
    """The list or mapping, and the index or key, of every value."""
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        yield data, key
        yield from _places(value)
