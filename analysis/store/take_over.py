"""Takes results of the layout before the store into the store of the same folder, without training.

    runs/EXPERIMENT/CELL/seed-N/, runs/custom/EXPERIMENT/CELL/seed-N/     runs, each moved by one rename
    runs/EXPERIMENT/CELL/metrics.csv                                      becomes the list of the cell
    analysis/EXPERIMENT/CELL/NAME.csv, analysis/custom/...                becomes a file for each run, and a list

What cannot be taken stays where it is, and is named: unfinished runs, runs that cannot be read, and other trainings of
a run that the store has. After a kill, the same command goes on.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fedflat.analysis.analyses import ANALYSES
from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.analyses.provenance import TEXT_COLUMNS, TRAININGS
from fedflat.analysis.analyses.stored import list_row, stored_file
from fedflat.bench.experiments.address import IDS, CellAddress
from fedflat.bench.experiments.results import METRICS, ResultPaths
from fedflat.bench.experiments.stored_config import trust_code
from fedflat.bench.files.csv_json import read_checked_csv, write_checked_csv, write_checked_json
from fedflat.bench.files.lists import write_list
from fedflat.bench.files.locks import folder_lock
from fedflat.bench.host.progress import Progress
from fedflat.bench.input.errors import UserError, counted
from fedflat.bench.training.lists import training
from fedflat.bench.training.run_directory import CONFIG, PROVENANCE, RunDirectory

MODELS = ".safetensors"

RUNS, ANALYSIS, CUSTOM, TAKEN_FROM = "runs", "analysis", "custom", "taken_from"
"""Folders of the earlier layout, and what it recorded of a run, or of rows, that another experiment had."""


@dataclass
class Taken:
    """How many runs and analyses were taken into the store, and how many were there already and were removed."""

    runs: int = 0
    again: int = 0
    analyses: int = 0
    left: list[str] = field(default_factory=list)


def is_earlier(results: Path) -> bool:
    """Whether a folder of results has something of the earlier layout."""
    return (results / RUNS).is_dir() or (results / ANALYSIS).is_dir()


def take_over(results: Path, *, trust: bool = False) -> Taken:
    """Take all that can be taken; with `trust`, user-defined code of the runs may be executed, as is needed."""
    paths, taken = ResultPaths(results), Taken()
    for place in sorted({file.parent for file in (results / RUNS).rglob(CONFIG)}):
        if place.name.removeprefix("seed-").isdigit():
            _take_run(place, paths, taken, trust=trust)
    stored = _places(paths)
    for file in sorted((results / RUNS).glob(f"*/*/*/*/*/{METRICS}")):
        _take_list(file, paths, stored, taken)
    for file in sorted((results / RUNS / CUSTOM).glob(f"*/*/*/*/*/{METRICS}")):
        _remove_table_of_no_experiment(file, stored, taken)
    for file in sorted((results / ANALYSIS).rglob("*.csv")):
        try:
            _take_analysis(file, paths, stored, taken)
        except UserError as error:
            taken.left.append(f"'{file}' is left: {error}")
    named = " ".join(taken.left)
    for folder in (results / RUNS, results / ANALYSIS):
        _remove_empty(folder)
        left = sorted({file.parent for file in folder.rglob("*") if file.is_file()})
        unnamed = [one for one in left if not any(f"'{part}'" in named for part in (one, *one.parents))]
        taken.left += [f"'{one}' is left: it is no finished run" for one in unnamed]
    return taken


def _take_run(place: Path, paths: ResultPaths, taken: Taken, *, trust: bool) -> None:
    try:
        if trust:
            trust_code(place)
        run = RunDirectory(place)
        there, about = paths.run(run.config), run.provenance
        there.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(there) as is_free:
            if not is_free:
                raise UserError("another process trains the run")
            own = {key: value for key, value in about.items() if key != TAKEN_FROM}
            if there.exists():
                known = {key: value for key, value in RunDirectory(there).provenance.items() if key != TAKEN_FROM}
                if known != own:
                    raise UserError(f"'{there}' is the same run from another training")
                _move_missing(place, there)
                shutil.rmtree(place)
                taken.again += 1
                return
            if own != about:
                write_checked_json(place / PROVENANCE, own)
            place.rename(there)
            taken.runs += 1
    except UserError as error:
        taken.left.append(f"'{place}' is left: {error}")
    except OSError as error:
        taken.left.append(f"'{place}' is left: {error.strerror}")


def _move_missing(place: Path, there: Path) -> None:
    """Move files that only one of two copies of a run has, such as models; a `UserError` if a model differs."""
    files = [file for file in place.rglob("*") if file.is_file()]
    for file in files:
        other = there / file.relative_to(place)
        if file.suffix == MODELS and other.exists() and file.read_bytes() != other.read_bytes():
            raise UserError(f"'{other}' differs")
    for file in files:
        other = there / file.relative_to(place)
        if not other.exists():
            other.parent.mkdir(parents=True, exist_ok=True)
            file.rename(other)


def _places(paths: ResultPaths) -> dict[str, Path]:
    """The directories of the runs in the store by identity."""
    found = {}
    for file in sorted(paths.store.glob(f"*/*/*/*/seed-*/{CONFIG}")):
        with suppress(UserError):  # a damaged run is nobody's
            found[RunDirectory(file.parent).identity] = file.parent
    return found


def _runs_of_table(file: Path, stored: Mapping[str, Path], taken: Taken) -> list[tuple[int, str, Path]] | None:
    """Seed, identity and place of the runs in a table of metrics; None if the store does not have all of them."""
    try:
        table = read_checked_csv(file, ["seed", "identity"], "", texts=["experiment", "code", *TEXT_COLUMNS])
    except UserError as error:
        taken.left.append(f"'{file}' is left: {error}")
        return None
    rows = [*table[["seed", "identity"]].drop_duplicates().itertuples(index=False, name=None)]
    if all(identity in stored for _, identity in rows):
        return [(seed, identity, stored[identity]) for seed, identity in rows]
    taken.left.append(f"'{file}' is left: runs of the cell are not in the store")
    return None


def _remove_table_of_no_experiment(file: Path, stored: Mapping[str, Path], taken: Taken) -> None:
    """Remove a table of metrics of runs with overridden values, which are found in the store by their values."""
    if _runs_of_table(file, stored, taken) is not None:
        file.unlink()


def _take_list(file: Path, paths: ResultPaths, stored: Mapping[str, Path], taken: Taken) -> None:
    """Write the list of a cell for its table of metrics, which is removed, if the store has all its runs."""
    experiment = file.parts[-6]
    address = CellAddress.of("/".join(file.parts[-5:-1]))
    found = _runs_of_table(file, stored, taken)
    if found is None:
        return
    write_list(
        paths.runs(experiment, address.path),
        [
            {
                "label": address.method,
                "seed": str(seed),
                "identity": identity,
                "path": place.relative_to(paths.root).as_posix(),
                "training": training(place),
            }
            for seed, identity, place in found
        ],
    )
    file.unlink()


def _take_analysis(file: Path, paths: ResultPaths, stored: Mapping[str, Path], taken: Taken) -> None:
    """Write the rows of each run into its directory, and the list of the cell; the file is removed."""
    parts = file.relative_to(paths.root / ANALYSIS).parts
    of_experiment = parts[0] != CUSTOM
    texts = [*TEXT_COLUMNS, "experiment", TAKEN_FROM]
    table = read_checked_csv(file, ["seed", "identity", "options", "compared_with"], "", texts=texts)
    rows = []
    for seed, own in table.groupby("seed", sort=False):
        identity = str(own["identity"].iloc[0])
        analysis, compared = _analysis_of(own), [*_pairs(own["compared_with"].fillna("").iloc[0])]
        if not {identity, *(one for _, one in compared)} <= stored.keys():
            raise UserError("a run that it analyses is not in the store")
        there = stored_file(stored[identity], analysis, _name(own, compared), compared)
        if not there.exists():
            there.parent.mkdir(exist_ok=True)
            trained = {TRAININGS: " ".join(training(stored[one]) for _, one in compared)} if compared else {}
            kept = own.drop(columns=["experiment", *IDS, TAKEN_FROM], errors="ignore")
            write_checked_csv(there, kept.assign(**trained))
            taken.analyses += 1
        rows.append(list_row(paths.root, int(str(seed)), identity, there))
    address = CellAddress.of("/".join(parts[1:5]))
    if of_experiment and rows and paths.runs(parts[0], address.path).is_file():
        write_list(paths.analysis(parts[0], address.path, file.stem), rows)
    file.unlink()


def _analysis_of(rows: pd.DataFrame) -> Analysis:
    """The analysis of rows, by their columns and the names of its options."""
    options = {name: json.loads(value) for name, value in _pairs(rows["options"].fillna("").iloc[0])}
    for kind in ANALYSES.values():
        if {*kind.model_fields} == {*options} and {*kind.columns} <= {*rows}:
            return kind.parse(options)
    raise UserError("no analysis of this version has these options")


def _pairs(text: str) -> Iterator[tuple[str, Any]]:
    """The pairs of a text of `name_value_pairs`."""
    for pair in filter(None, text.split("; ")):
        name, _, value = pair.partition("=")
        yield name, value


def _name(rows: pd.DataFrame, compared: list[tuple[str, str]]) -> str:
    """The label of the rows' run among those with which it is compared."""
    if not compared:
        return ""
    first = rows.iloc[0]
    labels = {label for label, _ in compared}
    column = next((name for name in ("model", "part") if name in rows), None)
    among = set(rows[column]) - labels if column is not None else set()
    return str(first["partition"] if first["partition"] in among else first["method"])


def _remove_empty(folder: Path) -> None:
    """Remove a folder and those below it as far as nothing is in them."""
    for below in sorted((one for one in folder.rglob("*") if one.is_dir()), key=lambda one: -len(one.parts)):
        with suppress(OSError):
            below.rmdir()
    with suppress(OSError):
        folder.rmdir()


def report(taken: Taken, log: Progress) -> None:
    """Say what was done."""
    for line in taken.left:
        log(line)
    log(
        f"{counted(taken.runs, 'run')} and {taken.analyses} analyses of runs taken into the store; {taken.again} "
        f"copies of runs removed; {len(taken.left)} left"
    )
