"""Analyses by name. Each module in a folder here holds one, of its own name; a new file is a new analysis."""

import pkgutil
import re
from collections.abc import Mapping
from typing import Any

from analysis.analyses.base import Analysis
from bench.experiments.files import experiment_files, read_yaml
from bench.experiments.results import RESERVED
from bench.input.errors import UserError, unknown
from bench.input.frozen import NAME
from bench.input.registry import registered

_FOLDERS = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__) if module.ispkg]

ANALYSES: Mapping[str, type[Analysis]] = registered(Analysis, *_FOLDERS)


def analysis_class(name: str) -> type[Analysis]:
    """An analysis by name; a `UserError` suggests the nearest."""
    if name not in ANALYSES:
        raise unknown("analysis", name, ANALYSES)
    return ANALYSES[name]


def parse_analysis(name: str, options: Mapping[str, Any]) -> Analysis:
    """An analysis with these options, the others at their defaults."""
    return analysis_class(name).parse(options, name)


def load_analyses(experiment: str) -> dict[str, Analysis]:
    """Every analysis by name, with the options that stand beside the experiment's file in analyses.yaml.

    An entry there may also have a name of its own and say `analysis: NAME`: one more of that kind, with other options.
    An entry that this file lacks is that of the experiment which it extends; what no file says is at its default.
    """
    found: dict[str, Analysis] = {name: cls() for name, cls in ANALYSES.items()}
    for experiments in reversed(experiment_files(experiment)):
        if (file := experiments.with_name("analyses.yaml")).is_file():
            found |= {name: _entry(name, given, f"'{file}': {name}") for name, given in read_yaml(file).items()}
    return found


def _entry(name: str, given: Any, where: str) -> Analysis:
    """What analyses.yaml says under a name."""
    if name in ANALYSES:
        return ANALYSES[name].parse(given or {}, where)
    if not isinstance(given, dict) or "analysis" not in given:
        raise unknown(f"analysis in {where} (one with a name of its own says which: analysis: ...)", name, ANALYSES)
    if not re.fullmatch(NAME, name) or name in RESERVED:
        raise UserError(f"{where}: a name has lower-case letters, digits and '_', and is none of {', '.join(RESERVED)}")
    options = {option: value for option, value in given.items() if option != "analysis"}
    return analysis_class(str(given["analysis"])).parse(options, where)
