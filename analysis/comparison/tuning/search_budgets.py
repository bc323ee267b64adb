"""What a search for tuned values was allowed: budgets, which are equal for methods that are compared fairly.

The section `tuned` of an experiment states the budget. It is stored with the runs: the number of trials in the column
`trials`, the rest as JSON in `tuning`.
"""

import itertools
import json
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import pandas as pd

from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.experiments.sections.tuning import Tuned, as_yaml
from fedflat.bench.input.errors import UserError

BUDGET = ("trials", "rungs", "validation", "seed", "judged")
"""What must be equal for two searches to be comparable."""

PROTOCOL = "protocol"
"""A further field: the hash of the protocol of a search in stages. Searches with one protocol have equal budgets,
whatever their seeds."""

REPLACED = "set"
"""A further field: the values of the experiment that --set replaced for the trials, such as training.rounds."""

RANGES = "ranges"
"""A further field: the ranges by the names of values."""

COMMON_RATES = frozenset(StepSettings.model_fields) - {"server_lr"}
"""Values whose range must be equal for two methods. That of server_lr depends on the server."""

_NO_BUDGET = ("methods", "search", "tuning", "grid", "engine")
"""Sections whose replaced values are no part of a budget, or are in other fields."""

Budget = Mapping[str, Any]
"""The fields of a budget that are recorded. Runs that were stored by earlier versions have only `trials`."""


def recorded(tuned: Tuned, label: str) -> dict[str, Any]:
    """The budget of a method, without the number of trials."""
    replaced = {key: value for key, value in tuned.set.items() if key.partition(".")[0] not in _NO_BUDGET}
    return {
        "rungs": list(tuned.rungs),
        "validation": tuned.validation,
        "seed": tuned.seed,
        "judged": tuned.score,
        **({PROTOCOL: tuned.protocol} if tuned.protocol is not None else {}),
        REPLACED: replaced,
        RANGES: {name: as_yaml(one.search) for name, one in tuned.ranges[label].items()},
    }


def budget_of(row: Mapping[Hashable, Any]) -> Budget:
    """The budget of a run, by the columns `trials` and `tuning`."""
    return {"trials": int(row["trials"]), **json.loads(str(row["tuning"]) or "{}")}


def by_protocol(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Which runs have values that were searched by a protocol."""
    known = {text: PROTOCOL in json.loads(text or "{}") for text in runs["tuning"].unique()}
    return runs["tuning"].map(known).astype(bool)


def differing(one: Budget, other: Budget, fields: Iterable[str] = (*BUDGET, REPLACED)) -> list[tuple[str, Any, Any]]:
    """The fields in which two budgets differ, with both values; a field that one does not record is not compared.

    Of searches by a protocol, its hash and the trials are compared; their seeds are the units of a comparison.
    """
    if PROTOCOL in one or PROTOCOL in other:
        pairs = [(field, one.get(field, "none"), other.get(field, "none")) for field in ("trials", PROTOCOL)]
        return [pair for pair in pairs if pair[1] != pair[2]]
    known = [field for field in fields if field in one and field in other]
    return [(field, one[field], other[field]) for field in known if one[field] != other[field]]


def differing_ranges(one: Budget, other: Budget, names: Iterable[str]) -> list[tuple[str, Any, Any]]:
    """The ranges of these values that differ, with both ranges; empty ones of a value that is not searched.

    Ranges of a protocol widen, each search's in its own way: they are not compared.
    """
    if RANGES not in one or RANGES not in other or PROTOCOL in one or PROTOCOL in other:
        return []
    found = [(f"range of {name}", one[RANGES].get(name, {}), other[RANGES].get(name, {})) for name in sorted(names)]
    return [(field, mine, theirs) for field, mine, theirs in found if mine != theirs]


def as_text(found: Iterable[tuple[str, Any, Any]]) -> str:
    """Differences in words, such as 'trials: 16 and 64; rungs: 0.5 and none'."""
    return "; ".join(f"{field}: {_text(one)} and {_text(other)}" for field, one, other in found)


def check_budgets(tuned_runs: pd.DataFrame, where: str) -> None:
    """A `UserError` if methods were tuned with different budgets; `where` names the place of the runs.

    Of two methods, the ranges of `COMMON_RATES` are compared; of one method in several settings, all ranges.
    """
    rows = tuned_runs[["method", "trials", "tuning"]].drop_duplicates().to_dict("records")
    known = [(str(row["method"]), budget_of(row)) for row in rows]
    for (method, budget), (other, another) in itertools.combinations(known, 2):  # a field may be missing in some
        names = COMMON_RATES if other != method else {*_ranges(budget), *_ranges(another)}
        if found := differing(budget, another) + differing_ranges(budget, another, names):
            methods = " and ".join(dict.fromkeys((method, other)))
            raise UserError(
                f"{where}: different budgets of tuning in the runs of {methods} ({as_text(found)}; allowed: one budget "
                "for all tuned runs of a grid)"
            )


def in_words(budget: Budget) -> str:
    """A budget in words, such as '16 trials in each setting, rungs 0.125, 0.25, 0.5, seed 1000, ...'."""
    if not budget["trials"]:
        return "none"
    if PROTOCOL in budget:
        return f"{_count(budget['trials'])} in each setting with each tuning seed, protocol {budget[PROTOCOL]}"
    trials = f"{_count(budget['trials'])} in each setting"
    if "rungs" not in budget:
        return f"{trials} (rungs, validation, seed and ranges are not recorded)"
    parts = [
        f"rungs {_text(budget['rungs'])}",
        f"seed {budget['seed']}",
        f"{budget['judged']}, on {100 * budget['validation']:g} % of the clients' training images",
        *(f"{key} {value}" for key, value in budget[REPLACED].items()),
    ]
    return ", ".join([trials, *parts])


def notes(own: pd.DataFrame, rivals: pd.DataFrame, name: str) -> list[str]:
    """What was tuned, for the method called `name` and for its rivals: budgets, and the ranges of the method."""
    mine, theirs = ("; or ".join(dict.fromkeys(map(in_words, budgets(rows)))) for rows in (own, rivals))
    fixed = [budget for budget in budgets(own) if PROTOCOL not in budget]  # those of a protocol widen with each seed
    ranges = ", ".join(f"{key} {range_text(one)}" for key, one in _ranges(*fixed).items())
    return [
        f"tuning of {name}: {mine}" + (f"; ranges: {ranges}" if ranges else ""),
        f"tuning of the rivals: {theirs}",
    ]


def unequal(own: pd.DataFrame, rivals: pd.DataFrame) -> list[str]:
    """In what the budgets of a method and of its rivals differ, such as '8 trials, rivals 16 trials'.

    Of ranges, those of `COMMON_RATES` are compared: hyper-parameters of two methods may share a name only. A range
    differs if rivals search the rate, and none of them in the method's range.
    """
    mine, theirs = budgets(own), budgets(rivals)
    found = [one for budget in mine for other in theirs for one in differing(budget, other)]
    lines = [f"{_count(one)}, rivals {_count(other)}" for field, one, other in found if field == "trials"]
    lines += [f"{field} {_text(one)}, rivals {_text(other)}" for field, one, other in found if field != "trials"]
    for budget in (one for one in mine if RANGES in one and PROTOCOL not in one):
        for name in sorted(COMMON_RATES):
            known = [_ranges(other)[name] for other in theirs if name in _ranges(other)]
            if known and (own_range := budget[RANGES].get(name, {})) not in known:
                of_rivals = " or ".join(dict.fromkeys(map(_text, known)))
                lines.append(f"range of {name} {_text(own_range)}, rivals {of_rivals}")
    return list(dict.fromkeys(lines))


def budgets(rows: pd.DataFrame) -> list[Budget]:
    """The distinct budgets of runs."""
    return [budget_of(row) for row in rows[["trials", "tuning"]].drop_duplicates().to_dict("records")]


def range_text(given: Mapping[str, Any]) -> str:
    """A range in words: '0.01 to 0.5 (log)', or '5 | 10 | 20'."""
    if "values" in given:
        return " | ".join(map(str, given["values"]))
    return f"{given['low']:g} to {given['high']:g}{' (log)' if given.get('log') else ''}"


def _ranges(*found: Budget) -> dict[str, Any]:
    return {name: one for budget in found for name, one in budget.get(RANGES, {}).items()}


def _count(trials: int) -> str:
    return f"{trials} trial{'s' * (trials != 1)}" if trials else "no tuning"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        is_range = {"low", "high", "values"} & {*value}
        return range_text(value) if is_range else ", ".join(f"{key} {one}" for key, one in value.items()) or "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
