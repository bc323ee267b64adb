"""Conditions on runs of the store, such as `method=fedsam, alpha=0.1, rho>0.05`."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fedflat.analysis.store.stored import StoredRun, require_known, short_names, value_of
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.strict_yaml import load_yaml

OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
CONDITION = re.compile(r"\s*([\w.]+)\s*(<=|>=|!=|=|<|>)\s*([^=<>!\s][^=<>]*?)\s*")


class Condition(NamedTuple):
    """A comparison of a value by name with one of several others; `!=`: with none of them."""

    name: str
    sign: str
    values: tuple[Any, ...]

    def holds(self, run: StoredRun, names: Mapping[str, str]) -> bool:
        """Whether it holds for a run; never for one that has no such value."""
        found = value_of(run, self.name, names)
        if found is None:
            return False
        if self.sign in ("=", "!="):
            equal = any(found == value or str(found) == str(value) for value in self.values)
            return equal == (self.sign == "=")
        return isinstance(found, int | float) and any(OPERATORS[self.sign](found, value) for value in self.values)


def conditions(text: str) -> list[Condition]:
    """The conditions of a text, separated by commas; alternatives of a value are separated by `|`."""
    found = []
    for part in filter(str.strip, text.split(",")):
        match = CONDITION.fullmatch(part)
        if match is None or not all(map(str.strip, match[3].split("|"))):
            raise UserError(
                f"--where '{part.strip()}' (allowed: conditions with =, !=, <, <=, > or >=, such as "
                "'method=fedsam, alpha=0.1, rho>0.05', with commas between them)"
            )
        texts = [text.strip() for text in match[3].split("|")]
        values = tuple(texts if match[1] == "hash" else map(_value, texts))
        if match[2] in OPERATORS and not all(isinstance(value, int | float) for value in values):
            raise UserError(f"--where '{part.strip()}' (allowed after {match[2]}: a number)")
        found.append(Condition(match[1], match[2], values))
    return found


def _value(text: str) -> Any:
    """A number, in any form that Python reads, such as 5e-2; else as in YAML."""
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    return load_yaml(text)


def selected(runs: Sequence[StoredRun], text: str) -> list[StoredRun]:
    """The runs for which all conditions of a text hold; a `UserError` if no run has a value of a condition, or if no
    run has a word that is given as a value, such as a label."""
    names, wanted = short_names(runs), conditions(text)
    for condition in wanted if runs else ():
        require_known(condition.name, names)
        known = {str(value_of(run, condition.name, names)) for run in runs}
        for word in (value for value in condition.values if isinstance(value, str) and value not in known):
            raise unknown(f"{condition.name} of runs", word, known - {"None"})
    return [run for run in runs if all(condition.holds(run, names) for condition in wanted)]
