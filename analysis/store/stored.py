"""The finished runs of a store, with the values of their configurations; no code of a run is executed."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from fedflat.analysis.analyses.found_runs import lists_in, runs_of_list
from fedflat.bench.data.partitions import PARTITIONS
from fedflat.bench.data.sources import SOURCES
from fedflat.bench.engine.participation import Participation
from fedflat.bench.experiments.address import IDS, RUN_IDS
from fedflat.bench.experiments.results import METRICS, ResultPaths, elsewhere
from fedflat.bench.experiments.sections.evaluation import Evaluation, score_column
from fedflat.bench.experiments.sections.training import Training
from fedflat.bench.files.checksums import DamagedFileError, damage_in_one_line
from fedflat.bench.files.left_out import leave_out
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.models import MODELS
from fedflat.bench.training.directories.run_files import check_run
from fedflat.bench.training.directories.working_directory import unfinished_runs
from fedflat.bench.training.run_directory import CONFIG, RunDirectory, run_directories

SECTIONS = ("partition", "participation", "model", "training", "evaluation", "dataset", "method")
"""The sections of a configuration whose values are shown. A value has its own name where no section before has one of
this name, whatever runs the store has: alpha is that of the partition, and a method's is method.alpha."""

ABOUT = ("score", "MiB", "days", "hash")
"""The names of `StoredRun.about`."""

UNTOLD = ("code", "hash", "file")
"""Ends of the names of values that are not shown: the hash of the configuration stands for them."""


@dataclass(frozen=True)
class StoredRun:
    """A whole run in the store."""

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

    @cached_property
    def about(self) -> dict[str, Any]:
        """What `fedflat runs` shows of it in addition: the last score in percent (None if it diverged), the size of its
        files in MiB, the days since it was finished, and the hash of its configuration."""
        last = self.last
        subset = next((prefix for prefix in ("test_", "validation_") if score_column(last, prefix) in last), "")
        score = last.get(score_column(last, subset))
        return {
            "score": float(score) if score else None,
            "MiB": sum(file.stat().st_size for file in self.place.rglob("*") if file.is_file()) / 2**20,
            "days": (time.time() - (self.place / CONFIG).stat().st_mtime) / 86400,
            "hash": self.place.parent.name.rpartition("-")[2],
        }

    @property
    def last(self) -> dict[str, str]:
        """The last row of its metrics as texts."""
        names, *_, values = (self.place / METRICS).read_text(encoding="utf-8").splitlines()
        return dict(zip(names.split(","), values.split(","), strict=False))


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value


class Content(NamedTuple):
    """The whole runs of a store by labels, place and seed, and the places of damaged and unfinished ones."""

    runs: list[StoredRun]
    damaged: list[Path]
    unfinished: list[Path]


def content(paths: ResultPaths, experiment: str | None = None) -> Content:
    """What a store has, or as much of it as the lists of an experiment name.

    What is damaged, or cannot be read, is named and left out. A `UserError` if there is no such experiment, or no
    store.
    """
    if not paths.store.is_dir():
        raise UserError(f"'{paths.store.absolute()}' does not exist: no run is finished here{elsewhere(paths.root)}")
    if experiment is None:
        places: Iterable[Path] = run_directories(paths.store, "*/*/*/*")
    else:
        folder = paths.lists(experiment)
        if not folder.is_dir():
            known = [one.name for one in sorted(paths.lists("").glob("*"))]
            raise unknown(f"experiment with lists in '{paths.lists('')}'", experiment, known)
        places = (one.place for file in lists_in(folder) for one in runs_of_list(file))
    found, damaged = list[StoredRun](), list[Path]()
    for place in dict.fromkeys(places):
        try:
            found.append(stored_run(place))
        except UserError as error:
            leave_out(place, error)
            damaged += [place] if isinstance(error, DamagedFileError) else []
    found.sort(key=lambda one: ([one.ids[name] for name in IDS], one.place.parent, one.ids["seed"]))
    cells = {place.parent for place in (*damaged, *(run.place for run in found))} if experiment else None
    unfinished = [place for place in unfinished_runs(paths.store) if cells is None or place.parent in cells]
    return Content(found, damaged, unfinished)


def stored_runs(paths: ResultPaths, experiment: str | None = None) -> list[StoredRun]:
    """The whole runs of `content`."""
    return content(paths, experiment).runs


def stored_run(place: Path) -> StoredRun:
    """The run in a directory; a `UserError` if it is not whole, or cannot be read."""
    directory = RunDirectory(place)
    config = check_run(directory)
    with damage_in_one_line(place / CONFIG, directory.remedy):
        run = StoredRun(place, {**config, "seed": int(config["seed"])})
        run.values  # noqa: B018 - computed once, if its sections are mappings
    return run


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
        "": {*RUN_IDS, *ABOUT},
        **{section: {name for kind in kinds for name in kind.model_fields} for section, kinds in of_section.items()},
    }


def value_of(run: StoredRun, name: str, names: Mapping[str, str]) -> Any:
    """A value by its dotted or its short name, or one of `RUN_IDS` or `ABOUT`; None if the run has no such value."""
    if name in (*RUN_IDS, *ABOUT):
        return run.ids[name] if name in RUN_IDS else run.about[name]
    full = [full for full, short in names.items() if name in (full, short)]
    return next((run.values[one] for one in full if one in run.values), None)


def require_known(name: str, names: Mapping[str, str]) -> None:
    """A `UserError` if no run has a value of this name; it suggests the last part of a longer name, as of --set."""
    known = [*RUN_IDS, *ABOUT, *names.values()]
    if name not in (*known, *names):
        last = name.rpartition(".")[2]
        raise unknown("value of runs", name, known, last if last in known else None, most=len(known))
