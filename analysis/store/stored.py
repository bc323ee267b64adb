"""The finished runs of a store, with the values of their configurations; no code of a run is executed."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fedflat.analysis.analyses.found_runs import lists_in, runs_of_list
from fedflat.bench.data.partitions import PARTITIONS
from fedflat.bench.data.sources import SOURCES
from fedflat.bench.engine.participation import Participation
from fedflat.bench.experiments.address import IDS, RUN_IDS
from fedflat.bench.experiments.results import METRICS, ResultPaths
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.experiments.sections.training import Training
from fedflat.bench.files.left_out import leave_out
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.models import MODELS
from fedflat.bench.training.run_directory import CONFIG

SECTIONS = ("partition", "participation", "model", "training", "evaluation", "dataset", "method")
"""The sections of a configuration whose values are shown. A value has its own name where no section before has one of
this name, whatever runs the store has: alpha is that of the partition, and a method's is method.alpha."""

UNTOLD = ("code", "hash", "file")
"""Ends of the names of values that are not shown: the hash of the configuration stands for them."""


@dataclass(frozen=True)
class StoredRun:
    """A finished run in the store, which may be damaged apart from its configuration."""

    place: Path
    config: Mapping[str, Any]

    @property
    def ids(self) -> dict[str, Any]:
        """The columns `RUN_IDS`, by the labels of its place; the method without the hash."""
        *setting, method, _ = self.place.parts[-len(RUN_IDS) :]
        return {**dict(zip(IDS, (*setting, method.rpartition("-")[0]), strict=True)), "seed": int(self.config["seed"])}

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values of its configuration by dotted name, such as training.rounds; null ones are left out."""
        sections = {name: dict(self.config.get(name) or {}) for name in SECTIONS}
        sections["method"] |= sections["method"].pop("hyperparameters", None) or {}
        sections["model"]["model"] = sections["model"].get("name")
        for section in sections.values():
            section.pop("name", None)
        return {name: value for name, value in _leaves(sections) if name.rpartition(".")[2] not in UNTOLD}

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(file.stat().st_size for file in self.place.rglob("*") if file.is_file())

    @property
    def days(self) -> float:
        """How long ago it was finished."""
        return (time.time() - (self.place / CONFIG).stat().st_mtime) / 86400

    @property
    def last(self) -> dict[str, str]:
        """The last row of its metrics as texts; empty if it cannot be read."""
        try:
            names, *_, values = (self.place / METRICS).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):
            return {}
        return dict(zip(names.split(","), values.split(","), strict=False))


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value


def stored_runs(paths: ResultPaths, experiment: str | None = None) -> list[StoredRun]:
    """The finished runs of a store, or those that the lists of an experiment name, by labels, place and seed.

    What cannot be read is named and left out. A `UserError` if there is no such experiment, or no store.
    """
    if not paths.store.is_dir():
        raise UserError(f"'{paths.store}' does not exist: no run is finished here (--results names another folder)")
    if experiment is None:
        places: Iterable[Path] = (file.parent for file in paths.store.glob(f"*/*/*/*/seed-*/{CONFIG}"))
    else:
        folder = paths.lists(experiment)
        if not folder.is_dir():
            known = [one.name for one in sorted(paths.lists("").glob("*"))]
            raise unknown(f"experiment with lists in '{paths.lists('')}'", experiment, known)
        places = (one.place for file in lists_in(folder) for one in runs_of_list(file))
    found = [one for place in dict.fromkeys(places) if (one := stored_run(place)) is not None]
    return sorted(found, key=lambda one: ([one.ids[name] for name in IDS], one.place.parent, one.ids["seed"]))


def stored_run(place: Path) -> StoredRun | None:
    """The run in a directory; None for one that is unfinished or cannot be read."""
    if not place.name.removeprefix("seed-").isdigit():
        return None
    try:
        config = json.loads((place / CONFIG).read_text(encoding="utf-8"))
        run = StoredRun(place, {**config, "seed": int(config["seed"])})
        run.values  # noqa: B018 - computed once, if its sections are mappings
        return run
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        leave_out(place, error)
        return None


def short_names(runs: Sequence[StoredRun]) -> dict[str, str]:
    """A name for each value by its dotted name: without the section, where no earlier section has this word."""
    names = dict.fromkeys(name for run in runs for name in run.values)
    words = {name: name.partition(".")[2] for name in names}
    counts = Counter(words.values())  # classes of users can have any word
    return {
        name: word if _first(word) == name or (_first(word) is None and counts[word] == 1) else name
        for name, word in words.items()
    }


def _first(word: str) -> str | None:
    """The first dotted name that this word can have in configurations; None if no section but a method has it."""
    return next((f"{section}.{word}" for section, words in _words().items() if word in words), None)


@cache
def _words() -> Mapping[str, set[str]]:
    """The names of values by section, in the order of `SECTIONS`; those that identify a run come first."""
    of_section: Mapping[str, Iterable[type[BaseModel]]] = {
        "partition": PARTITIONS.values(),
        "participation": [Participation],
        "model": MODELS.values(),
        "training": [Training],
        "evaluation": [Evaluation],
        "dataset": SOURCES.values(),
    }
    return {
        "": {*RUN_IDS},
        **{section: {name for kind in kinds for name in kind.model_fields} for section, kinds in of_section.items()},
    }


def value_of(run: StoredRun, name: str, names: Mapping[str, str]) -> Any:
    """A value by its dotted or its short name, or one of `RUN_IDS`; None if the run has no such value."""
    if name in RUN_IDS:
        return run.ids[name]
    full = [full for full, short in names.items() if name in (full, short)]
    return next((run.values[one] for one in full if one in run.values), None)


def require_known(name: str, names: Mapping[str, str]) -> None:
    """A `UserError` if no run has a value of this name."""
    if name not in (*RUN_IDS, *names, *names.values()):
        raise unknown("value of runs", name, [*RUN_IDS, *names.values()])
