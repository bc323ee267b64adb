"""What is changed of every experiment at once, as by Snakemake's `--config`: rounds, seeds, scale, methods, report."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from bench.experiments.experiment import experiment_data
from bench.experiments.scale import Scale
from bench.input.errors import UserError, unknown
from bench.input.frozen import REPORT
from bench.methods.catalog import CATALOG

SHORT = {"rounds": "training.rounds", "seeds": "grid.seeds", "scale": "scale", "methods": "chosen", "report": "report"}
"""Keys of `--config`, and those of an experiment that they change."""


def changes(config: Mapping[str, Any]) -> dict[str, Any]:
    """The changed keys of experiments; a `UserError` names a wrong value and what is allowed."""
    for key, (fits, allowed) in _ALLOWED.items():
        if key in config and not fits(config[key]):
            raise UserError(f"--config {key}={config[key]}: {allowed}")
    return {dotted: config[key] for key, dotted in SHORT.items() if key in config}


def check_methods(chosen: Iterable[str], sources: Iterable[str]) -> None:
    """A `UserError` if one of the methods is in none of these experiments, which must be valid, nor in the catalog."""
    known = {label for source in sources for label in _labels(experiment_data(source))}.union(CATALOG)
    for method in chosen:
        if method not in known:
            raise unknown("method", method, known)


def _labels(data: Mapping[str, Any]) -> set[str]:
    """The labels of methods that an experiment and its parts name."""
    sections = [data, *(data.get("parts") or {}).values()]
    return {label for section in sections for label in (section or {}).get("methods") or {}}


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _are_seeds(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(str(seed).isdecimal() for seed in value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)


_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "rounds": (_is_count, "a whole number from 1 on"),
    "seeds": (_are_seeds, "a list such as [0,1,2]"),
    "scale": (lambda value: value in get_args(Scale), " or ".join(get_args(Scale))),
    "methods": (_are_names, "a list such as [fedavg,fedsam]"),
    "report": (lambda value: bool(re.match(REPORT, str(value))), "last, best, or mean_last_N, such as mean_last_100"),
}
"""What each key may be, and that in words."""
