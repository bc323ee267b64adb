"""Analyses by name: a module NAME in a folder here defines the analysis NAME; files of users define others."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.analyses.user_analysis import class_of
from fedflat.bench.experiments.files import PAPER_TABLES, experiment_files, read_yaml
from fedflat.bench.experiments.results import RESERVED
from fedflat.bench.experiments.sections.own_analysis import OwnAnalysis, parse_own_analysis
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.frozen import NAME
from fedflat.bench.input.preference import with_first_known
from fedflat.bench.input.registry import registered

ANALYSES: Mapping[str, type[Analysis]] = registered(Analysis, __name__)

for _name, _class in ANALYSES.items():  # fingerprints and lists find an analysis by its module
    if _class.__module__.rpartition(".")[2] != _name:
        raise TypeError(f"the analysis '{_name}' must be defined in a module of that name, not in {_class.__module__}")


_OF_USERS: dict[str, type[Analysis]] = {}
"""Those of users' files that this process has read; of two with a name, the later one."""


def analyses_of_users() -> Mapping[str, type[Analysis]]:
    """Those of users' files that this process has read, by name: what they measure has their words."""
    return _OF_USERS


def read_own(analyses: Iterable[OwnAnalysis]) -> dict[str, type[Analysis]]:
    """The analyses of a user by name; their files are executed. A `UserError` if two have one name."""
    found: dict[str, type[Analysis]] = {}
    for one in analyses:
        kind = class_of(one, ANALYSES)
        if kind.name in found:
            raise UserError(f"analyses: two have the name '{kind.name}' (allowed: each name once)")
        measured = {name for other in found.values() for name in other.quantities}
        if twice := [name for name in kind.quantities if name in measured]:
            raise UserError(f"analyses: two have the quantity '{twice[0]}' (allowed: each name once)")
        found[kind.name] = kind
    _OF_USERS.update(found)
    return found


def analysis_class(name: str) -> type[Analysis]:
    """The class of an analysis, by name or as path/to/file.py:Class; a `UserError` suggests the nearest name."""
    if ":" in name:
        (kind,) = read_own([parse_own_analysis(name)]).values()
        return kind
    if name not in ANALYSES:
        raise unknown("analysis", name, ANALYSES)
    return ANALYSES[name]


def parse_analysis(name: str, options: Mapping[str, Any]) -> Analysis:
    """An analysis with these options; other options have their default values."""
    return analysis_class(name).parse(options, name)


REFERENCES = ("reference", "towards")
"""Options that name a method, or a partition, with which a run is compared."""


def load_analyses(
    experiment: str, labels: Collection[str] = (), own: Iterable[OwnAnalysis] = ()
) -> dict[str, Analysis]:
    """All analyses by name, those of FedFlat and the user's `own` ones, with the options in analyses.yaml in the
    folder of the experiment's file.

    A key of that file is the name of an analysis, or a new name for the analysis `analysis: NAME` with other options.
    `labels`: methods and partitions of the experiment. A list of `REFERENCES` is in order of preference: the first one
    that the experiment has is taken.
    The file of an experiment takes precedence over that of the experiment which it extends, and both over the defaults.
    If there is no such file, that of quick is used, whose options suit the default tables and figures.
    """
    kinds = {**ANALYSES, **read_own(own)}
    analyses: dict[str, Analysis] = {name: cls() for name, cls in kinds.items()}
    files = [file.with_name("analyses.yaml") for file in reversed(experiment_files(experiment))]
    for file in [file for file in files if file.is_file()] or [PAPER_TABLES / "quick" / "analyses.yaml"]:
        for name, value in read_yaml(file).items():
            chosen = with_first_known(value, REFERENCES, labels) if isinstance(value, dict) else value
            analyses[name] = _parse_key(name, chosen, f"'{file}': {name}", kinds)
    return analyses


def _parse_key(name: Any, value: Any, where: str, kinds: Mapping[str, type[Analysis]]) -> Analysis:
    """The analysis, of one of these kinds, that a key of analyses.yaml and its value define."""
    if name in kinds:
        if not isinstance(value, dict | None):
            raise UserError(f"{where} = {value!r} (allowed: options of the analysis, such as {{seed: 0}})")
        return kinds[name].parse(value or {}, where)
    if not isinstance(value, dict) or "analysis" not in value:
        raise unknown(f"analysis in {where} (an entry with another name needs the key 'analysis')", name, kinds)
    if not isinstance(name, str) or not re.fullmatch(NAME, name) or name in RESERVED:
        raise UserError(f"{where}: a name has lower-case letters, digits and '_' (not allowed: {', '.join(RESERVED)})")
    options = {option: given for option, given in value.items() if option != "analysis"}
    if (kind := str(value["analysis"])) not in kinds:
        raise unknown("analysis", kind, kinds)
    return kinds[kind].parse(options, where)
