"""Conditions on runs of the store, such as `method=fedsam, alpha=0.1, rho>0.05`."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedflat.analysis.store.stored import StoredRun, require_known, short_names, value_of
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.strict_yaml import load_yaml

OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "!=": operator.ne, "=": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
CONDITION = re.compile(r"\s*([\w.]+)\s*(<=|>=|!=|=|<|>)\s*(.*?)\s*")


class Condition(NamedTuple):
    """A comparison of a value by name with one of several others; `!=`: with none of them."""

    name: str
    sign: str
    values: tuple[Any, ...]

    def holds(self, run: StoredRun, names: Mapping[str, str]) -> bool:
        """Whether it holds for a run; never for one that has no such value, except for `!=`."""
        found = value_of(run, self.name, names)
        if self.sign == "!=":
            return found not in self.values
        return any(_compared(self.sign, found, value) for value in self.values)


def _compared(sign: str, found: Any, value: Any) -> bool:
    if sign == "=":
        return bool(found == value) or str(found) == str(value)
    return isinstance(found, int | float) and isinstance(value, int | float) and OPERATORS[sign](found, value)


def conditions(text: str) -> list[Condition]:
    """The conditions of a text, separated by commas; alternatives of a value are separated by `|`."""
    found = []
    for part in filter(str.strip, text.split(",")):
        match = CONDITION.fullmatch(part)
        if match is None or not all(map(str.strip, match[3].split("|"))):
            raise UserError(
                f"--where '{part.strip()}' (allowed: conditions with =, !=, <, <=, > or >=, such as "
                "'method=fedsam, alpha=0.1, rho>0.05')"
            )
        found.append(Condition(match[1], match[2], tuple(load_yaml(value) for value in match[3].split("|"))))
    return found


def selected(runs: Sequence[StoredRun], text: str) -> list[StoredRun]:
    """The runs for which all conditions of a text hold; a `UserError` if no run has a value of a condition."""
    names, wanted = short_names(runs), conditions(text)
    for condition in wanted if runs else ():
        require_known(condition.name, names)
    return [run for run in runs if all(condition.holds(run, names) for condition in wanted)]
