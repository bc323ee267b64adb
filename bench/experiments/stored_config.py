"""Stored configurations of runs, which may come from anybody: what code they name, before any of it is looked for.

FedFlat stores every section with all its fields, so a section in a short form is refused. A run's code is the copy in
its own directory, wherever the original was, and its content must be trusted.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedflat.bench.code.trusted_code import require_trusted, trust
from fedflat.bench.experiments.run_config import CODE
from fedflat.bench.input.content import read_known, read_own
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import NAME


def code_sections(data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The sections of a stored configuration that name code, with their fields; nothing is looked up or read.

    A `UserError` if a section that may name code is not in the form in which FedFlat stores it.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for section, kind in CODE.items():
        given = data.get(section)
        if not isinstance(given, dict):
            raise UserError(f"{section} = {given!r} (allowed: a mapping)")
        if (name := given.get("name")) is not None and not re.fullmatch(NAME, str(name)):
            raise UserError(f"{section} is code outside of the run, or no name: {name!r}")
        if kind.is_in(given):
            found[section] = given
    return found


def with_own_code(data: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """The stored configuration of the run in a directory, with the paths of the run's copies of code.

    A `UserError` if a copy is missing or has changed; an `UntrustedCodeError` if it may not be executed.
    """
    own = {}
    for section, given in code_sections(data).items():
        copy, kind = run / copy_name(section), CODE[section].kind_of_file()
        require_trusted(copy, read_known(copy, given.get("code"), kind), kind)
        own[section] = {**given, "file": str(copy)}
    return {**data, **own}


def copy_name(section: str) -> str:
    """The name of a run's copy of the code that a section names."""
    return f"{section}.py"


def trust_code(run: Path) -> None:
    """Trust the code of the run in a run directory."""
    for section, kind in CODE.items():
        if (copy := run / copy_name(section)).is_file():
            trust(read_own(copy, kind.kind_of_file()))
