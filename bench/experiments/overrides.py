"""Keys of Snakemake's `--config` that override every experiment: rounds, seeds, scale, methods, report."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from bench.experiments.resolving import experiment_data
from bench.experiments.scale import Scale
from bench.input.errors import UserError, unknown
from bench.input.frozen import REPORT
from bench.methods.catalog import CATALOG

CONFIG_KEYS = {
    "rounds": "training.rounds",
    "seeds": "grid.seeds",
    "scale": "scale",
    "methods": "chosen",
    "report": "report",
}
"""For each key of `--config`, the key of an experiment's file that it overrides."""


def config_overrides(config: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides by the keys of an experiment's file; a `UserError` names a wrong value and what is allowed."""
    for key, (is_valid, allowed) in _ALLOWED.items():
        if key in config and not is_valid(config[key]):
            raise UserError(f"--config {key}={config[key]} (allowed: {allowed})")
    return {dotted: config[key] for key, dotted in CONFIG_KEYS.items() if key in config}


def check_methods(chosen: Iterable[str], sources: Iterable[str]) -> None:
    """A `UserError` if a chosen method is neither in one of these valid experiments nor in the catalog."""
    known = {label for source in sources for label in _labels(experiment_data(source))}.union(CATALOG)
    for method in chosen:
        if method not in known:
            raise unknown("method", method, known)


def _labels(data: Mapping[str, Any]) -> set[str]:
    """The labels of the methods of an experiment and its parts."""
    sections = [data, *(data.get("parts") or {}).values()]
    return {label for section in sections for label in (section or {}).get("methods") or {}}


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _are_seeds(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(str(seed).isdecimal() for seed in value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)


_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "rounds": (_is_count, "a whole number of at least 1"),
    "seeds": (_are_seeds, "a list such as [0,1,2]"),
    "scale": (lambda value: value in get_args(Scale), " or ".join(get_args(Scale))),
    "methods": (_are_names, "a list such as [fedavg,fedsam]"),
    "report": (lambda value: bool(re.match(REPORT, str(value))), "last, best, or mean_last_N, such as mean_last_100"),
}
"""For each key, whether a value is allowed, and the allowed values in words."""
