"""The winners of a search, as the file of an experiment that extends the tuned one."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fedflat.bench.experiments.address import Setting
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.files import experiment_names
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.sections.tuning import as_yaml
from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.errors import UserError, first_few
from fedflat.bench.tuning.cell_search import CellSearch, seed_of
from fedflat.bench.tuning.ranges import HYPERPARAMETERS, TRAINING
from fedflat.bench.tuning.score import LAST, in_words
from fedflat.bench.tuning.trials import value_at

SUFFIX = "_tuned"
"""The end of the name of an experiment with tuned values."""


def write_winners(
    experiment: Experiment, source: str, replaced: Mapping[str, Any], searches: Sequence[CellSearch], out: Path
) -> None:
    """Write the winners of these searches, which have ended.

    `source`: the name or file of the tuned experiment; `replaced`: its values that the command line has replaced.
    """
    content = _content(experiment, extended(source, out), replaced, searches)
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=118, allow_unicode=True)
    head = "# The values with the best validation accuracy for each method and setting. Written by fedflat tune.\n"
    write_text(out, head + text)


def require_winners(searches: Iterable[CellSearch]) -> None:
    """A `UserError` that names the cells without a winner, by the reason, if there are any."""
    failed: dict[str, list[str]] = {}
    for search in searches:
        if search.winner is None:
            failed.setdefault(_reasons(search), []).append(search.cell.path)
    if failed:
        texts = [f"{first_few(cells)}: {reason}" for reason, cells in failed.items()]
        raise UserError(f"all trials failed in {'; in '.join(texts)}")


def extended(source: str, out: Path) -> str:
    """The tuned experiment as the file names it: by its name, or by the path from the folder of the file."""
    return source if source in experiment_names() else os.path.relpath(Path(source).absolute(), out.parent.absolute())


def _content(
    experiment: Experiment, extends: str, replaced: Mapping[str, Any], searches: Sequence[CellSearch]
) -> dict[str, Any]:
    tuning = experiment.tuning
    methods: dict[str, dict[str, Any]] = {}
    ranges: dict[str, Any] = {}
    searched: dict[str, list[str]] = {}
    untuned: dict[str, dict[str, str]] = {}
    for search in searches:
        address = search.cell.address
        label, setting = address.method, _label(experiment, address.setting)
        ranges.setdefault(label, {}).update({_short(place): as_yaml(one) for place, one in search.ranges.items()})
        searched.setdefault(label, []).append(setting)
        entry = methods.setdefault(label, _inherited_where(experiment, label))
        if (winner := search.winner) is None:
            untuned.setdefault(label, {})[setting] = "all trials failed: " + _reasons(search)
        else:
            entry.setdefault("where", {})[setting] = _entry(winner.run, search.ranges, _given_swa(experiment, label))
    return {
        "name": f"{experiment.name}{SUFFIX}",
        "extends": extends,
        "description": f"{experiment.description} Values tuned with {tuning.trials} trials.".strip(),
        "tuned": {
            "experiment": experiment.name,
            "trials": tuning.trials,
            "seed": seed_of(experiment),
            "validation": tuning.validation,
            "score": in_words(experiment.report or LAST),
            "rungs": list(tuning.rungs),
            "ranges": ranges,
            "searched": searched,
            **({"set": dict(replaced)} if replaced else {}),
            **({"untuned": untuned} if untuned else {}),
        },
        "methods": {label: entry or None for label, entry in methods.items()},
    }


def _label(experiment: Experiment, setting: Setting) -> str:
    """The label of a setting in `where`, which has the data set only if there are several parts."""
    return setting.where_labels[2 if experiment.parts else 1]


def _inherited_where(experiment: Experiment, label: str) -> dict[str, Any]:
    """What the tuned experiment has in `where`: an entry's `where` replaces that of the extended experiment."""
    where = experiment.methods[label].where
    return {"where": {key: one.model_dump(exclude_defaults=True) for key, one in where.items()}} if where else {}


def _given_swa(experiment: Experiment, label: str) -> list[str]:
    """The fields of SWA that the tuned experiment gives: an entry of `where` replaces all of them."""
    return list(experiment.methods[label].hyperparameters.get("swa") or {})


def _entry(run: RunConfig, places: Iterable[str], swa: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The values of a run at these places, and those fields of SWA, as an entry of `where`."""
    found: dict[str, dict[str, Any]] = {}
    for place in places:
        section, _, name = place.partition(".")
        own = found.setdefault(section, {})
        if name.startswith("swa."):
            names = dict.fromkeys([*swa, *own.get("swa", {}), name.removeprefix("swa.")])
            own["swa"] = {name: run.method.hyperparameters["swa"][name] for name in names}
        else:
            own[name] = value_at(run, place)
    return found


def _short(place: str) -> str:
    return place.removeprefix(TRAINING).removeprefix(HYPERPARAMETERS)


def _reasons(search: CellSearch) -> str:
    reasons = dict.fromkeys(result.reason for _, result in sorted(search.results.items()))
    return next(iter(reasons)) + (f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else "")
