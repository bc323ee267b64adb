"""Analyses by name: a module NAME in one of the folders here defines the analysis NAME."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from fedflat.analysis.analyses.base import Analysis
from fedflat.bench.experiments.files import PAPER_TABLES, experiment_files, read_yaml
from fedflat.bench.experiments.results import RESERVED
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.frozen import NAME
from fedflat.bench.input.preference import with_first_known
from fedflat.bench.input.registry import registered

ANALYSES: Mapping[str, type[Analysis]] = registered(Analysis, __name__)

for _name, _class in ANALYSES.items():  # fingerprints and lists find an analysis by its module
    if _class.__module__.rpartition(".")[2] != _name:
        raise TypeError(f"the analysis '{_name}' must be defined in a module of that name, not in {_class.__module__}")


def analysis_class(name: str) -> type[Analysis]:
    """The class of an analysis; a `UserError` suggests the nearest name."""
    if name not in ANALYSES:
        raise unknown("analysis", name, ANALYSES)
    return ANALYSES[name]


def parse_analysis(name: str, options: Mapping[str, Any]) -> Analysis:
    """An analysis with these options; other options have their default values."""
    return analysis_class(name).parse(options, name)


REFERENCES = ("reference", "towards")
"""Options that name a method, or a partition, with which a run is compared."""


def load_analyses(experiment: str, labels: Collection[str] = ()) -> dict[str, Analysis]:
    """All analyses by name, with the options in analyses.yaml in the folder of the experiment's file.

    A key of that file is the name of an analysis, or a new name for the analysis `analysis: NAME` with other options.
    `labels`: methods and partitions of the experiment. A list of `REFERENCES` is in order of preference: the first one
    that the experiment has is taken.
    The file of an experiment takes precedence over that of the experiment which it extends, and both over the defaults.
    If there is no such file, that of quick is used, whose options suit the default tables and figures.
    """
    analyses: dict[str, Analysis] = {name: cls() for name, cls in ANALYSES.items()}
    files = [file.with_name("analyses.yaml") for file in reversed(experiment_files(experiment))]
    for file in [file for file in files if file.is_file()] or [PAPER_TABLES / "quick" / "analyses.yaml"]:
        for name, value in read_yaml(file).items():
            chosen = with_first_known(value, REFERENCES, labels) if isinstance(value, dict) else value
            analyses[name] = _parse_key(name, chosen, f"'{file}': {name}")
    return analyses


def _parse_key(name: Any, value: Any, where: str) -> Analysis:
    """The analysis that a key of analyses.yaml and its value define."""
    if name in ANALYSES:
        if not isinstance(value, dict | None):
            raise UserError(f"{where} = {value!r} (allowed: options of the analysis, such as {{seed: 0}})")
        return ANALYSES[name].parse(value or {}, where)
    if not isinstance(value, dict) or "analysis" not in value:
        raise unknown(f"analysis in {where} (an entry with another name needs the key 'analysis')", name, ANALYSES)
    if not isinstance(name, str) or not re.fullmatch(NAME, name) or name in RESERVED:
        raise UserError(f"{where}: a name has lower-case letters, digits and '_' (not allowed: {', '.join(RESERVED)})")
    options = {option: given for option, given in value.items() if option != "analysis"}
    return analysis_class(str(value["analysis"])).parse(options, where)
