"""Stored configurations of runs, which may come from anybody: what code they name, before any of it is looked for.

FedFlat stores every section with all its fields, so a section in a short form is refused. A run's code is the copy in
its own directory, wherever the original was, and its content must be trusted.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedflat.bench.code.trusted_code import require_trusted, trust
from fedflat.bench.experiments.run_config import CODE, METRICS
from fedflat.bench.input.content import read_known, read_own
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import NAME
from fedflat.bench.metrics.user_metric import NOUN


def code_sections(data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The parts of a stored configuration that name code, with their fields, by the names of the run's copies without
    ending: the sections, and metrics. Nothing is looked up or read.

    A `UserError` if a part that may name code is not in the form in which FedFlat stores it.
    """
    found: dict[str, Mapping[str, Any]] = {_copy_of(one): one for one in _metrics(data) if isinstance(one, dict)}
    for section, kind in CODE.items():
        if section == METRICS:
            continue
        given = data.get(section)
        if not isinstance(given, dict):
            raise UserError(f"{section} = {given!r} (allowed: a mapping)")
        if (name := given.get("name")) is not None and not re.fullmatch(NAME, str(name)):
            raise UserError(f"{section} is code outside of the run, or no name: {name!r}")
        if kind.is_in(given):
            found[section] = given
    return found


def _metrics(data: Mapping[str, Any]) -> Iterator[str | dict[str, Any]]:
    """The metrics of a stored configuration: names, and the fields of those that are code."""
    evaluation = data.get("evaluation") or {}
    if not isinstance(evaluation, dict):
        raise UserError(f"evaluation = {evaluation!r} (allowed: a mapping)")
    listed = evaluation.get("metrics") or []
    if not isinstance(listed, list):
        raise UserError(f"{METRICS} = {listed!r} (allowed: a list)")
    for place, one in enumerate(listed):
        is_code = isinstance(one, dict) and isinstance(one.get("function"), str) and one["function"].isidentifier()
        if (not is_code and not (isinstance(one, str) and re.fullmatch(NAME, one))) or one in listed[:place]:
            raise UserError(f"{METRICS} has code outside of the run, or no name: {one!r}")
        yield one


def _copy_of(metric: Mapping[str, Any]) -> str:
    return f"{NOUN}_{metric['function']}"


def with_own_code(data: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """The stored configuration of the run in a directory, with the paths of the run's copies of code.

    A `UserError` if a copy is missing or has changed; an `UntrustedCodeError` if it may not be executed.
    """
    own = {}
    for name, given in code_sections(data).items():
        copy, kind = run / copy_name(name), _kind_of_file(name)
        require_trusted(copy, read_known(copy, given.get("code"), kind), kind)
        own[name] = {**given, "file": str(copy)}
    metrics = [own.pop(_copy_of(one)) if isinstance(one, dict) else one for one in _metrics(data)]
    evaluation = {"evaluation": {**data["evaluation"], "metrics": metrics}} if metrics else {}
    return {**data, **own, **evaluation}


def _kind_of_file(name: str) -> str:
    """The kind of the file of which a run's copy has this name, such as "model file"."""
    return CODE.get(name, CODE[METRICS]).kind_of_file()


def copy_name(name: str) -> str:
    """The file with a run's copy of code, from its name without ending."""
    return f"{name}.py"


def trust_code(run: Path) -> None:
    """Trust the code of the run in a run directory."""
    for copy in [*(run / copy_name(section) for section in CODE), *sorted(run.glob(copy_name(f"{NOUN}_*")))]:
        if copy.is_file():
            trust(read_own(copy, _kind_of_file(copy.stem)))
