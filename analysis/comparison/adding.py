"""Adding the runs of experiments to stored baselines: all runs, or a clear refusal."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedflat.analysis.comparison.baselines import (
    COMMON,
    CURVES,
    KEY,
    Baselines,
    folder_of,
    load,
    save,
    stored_experiment,
)
from fedflat.analysis.comparison.comparable import check_accuracies, check_comparable, check_versions, place_of
from fedflat.analysis.comparison.run_table import (
    CURVE_IDS,
    TUNED,
    FinishedRun,
    curve_table,
    finished_runs,
    require_all_rounds,
    run_table,
)
from fedflat.analysis.comparison.tuning.search_budgets import by_protocol, check_budgets
from fedflat.analysis.layouts.run_columns import ANALYSED
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.address import IDS, CellAddress
from fedflat.bench.experiments.files import experiment_files, experiment_names, read_yaml
from fedflat.bench.experiments.installed import RUNS, begin_as_copy
from fedflat.bench.experiments.resolving import experiment_data
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.atomic import write_text
from fedflat.bench.files.locks import folder_lock
from fedflat.bench.input.errors import UserError, first_few
from fedflat.bench.input.frozen import NAME
from fedflat.bench.training.directories.open_runs import no_empty_folders

FEWEST_SEEDS = 2
"""Runs of fewer seeds are not stored: one seed shows no spread."""


def add(
    requests: Sequence[RequestedExperiment],
    grid: str,
    folder: Path | None = None,
    *,
    analyses: bool = True,
    replace: bool = False,
) -> Path:
    """Add all runs of experiments to the baselines of a grid, whose other rows are kept; return the folder.

    A `UserError`, and nothing is written, if runs or analyses are missing (see `collect`), if a run is stored already,
    if no setting is a stored one, if runs cannot be compared with stored ones of the same setting, or if tuned runs had
    different budgets. With `replace`, stored rows of these experiments and of the same runs are replaced, and files of
    tuned values without runs are removed. Files of tuned values that need no other files are copied.
    """
    if not re.fullmatch(NAME, grid):
        raise UserError(f"--grid '{grid}': allowed are lower-case letters, digits and '_'")
    place, known_place = (folder, folder) if folder else (ResultPaths().baselines(grid), folder_of(grid))
    added = [collect(requested, analyses=analyses) for requested in requests]
    place.parent.mkdir(parents=True, exist_ok=True)
    with no_empty_folders([place / RUNS]), folder_lock(place) as is_free:
        if not is_free:
            raise UserError(f"another process is writing '{place}'")
        stored = [load(grid, folder)] if any((known_place / name).exists() for name in (RUNS, COMMON, CURVES)) else []
        before = {name for one in stored for name in one.runs["experiment"]}
        names = {requested.experiment.name for requested in requests}
        if replace:
            stored = [_without(one, names, added) for one in stored]
        for known, new in itertools.product(stored, added):
            _check_settings(known.runs, new.runs, place)
        together = Baselines(
            pd.concat([one.runs for one in (*stored, *added)], ignore_index=True),
            pd.concat([one.curves for one in (*stored, *added)], ignore_index=True),
        )
        check_versions(together.runs["code"], f"'{place}'")
        check_comparable(together.runs, f"'{place}'")  # first: --replace, which the next check suggests, would not help
        _check_distinct(together.runs, place)
        _check_seeds(together.runs, place)
        check_budgets(together.of_variant(TUNED).runs, f"'{place}'")
        if folder is None:
            begin_as_copy(place)
        kept = {requested.experiment.name for requested in requests if _keep_tuned_file(requested, place)}
        save(place, together)  # after the files: a kill leaves no runs without theirs
        if replace:
            left = set(together.runs["experiment"]) - names
            for name in (before | names) - (kept | left):
                stored_experiment(place, name).unlink(missing_ok=True)
    return place


def _check_settings(stored: pd.DataFrame, added: pd.DataFrame, place: Path) -> None:
    """A `UserError` if runs have none of the settings of the stored ones: they belong to another grid."""
    known, own = (list(dict.fromkeys(map("/".join, rows[IDS[:3]].to_numpy()))) for rows in (stored, added))
    if stored.empty or set(known) & set(own):
        return
    raise UserError(
        f"experiment {added['experiment'].iloc[0]} has none of the settings of '{place}' (it has "
        f"{first_few(own, 2)}; allowed: runs with one of {first_few(known, 2)}, or the name of another grid)"
    )


def _keep_tuned_file(requested: RequestedExperiment, place: Path) -> bool:
    """Copy the file of tuned values next to the runs, if it can be read there; whether it is copied."""
    file = Path(requested.name_or_file)
    if requested.experiment.tuned is None or not _is_complete(file):
        return False
    write_text(stored_experiment(place, requested.experiment.name), file.read_text(encoding="utf-8"))
    return True


def _is_complete(file: Path) -> bool:
    """Whether an experiment's file extends a named experiment, and names no further file, folder or module."""
    extended = read_yaml(file).get("extends")
    if extended not in experiment_names():
        return False
    return _named_places(experiment_data(str(file))) <= _named_places(experiment_data(extended))


def _named_places(data: Any) -> set[str]:
    """The files, folders and modules that an experiment's sections name."""
    if isinstance(data, list):
        return set().union(*map(_named_places, data))
    if not isinstance(data, dict):
        return set()
    own = {value for key, value in data.items() if key in ("file", "root", "module") and isinstance(value, str)}
    return own.union(*map(_named_places, data.values()))


def collect(requested: RequestedExperiment, *, analyses: bool = True) -> Baselines:
    """The runs of an experiment; a `UserError` if runs are missing, stopped early, or cannot be compared.

    An analysis is required for all cells if the analyses.yaml of the experiment, or of one that it extends, names it,
    or if it is computed for some cells. Without `analyses`, the columns of analyses are empty. Of an experiment with
    tuned values, cells that were not searched are left out: their values are those of the experiment that it extends.
    Of a search by a protocol, which goes on, cells without all runs are left out, and analyses may be missing.
    """
    experiment = requested.experiment
    runs = finished_runs(requested)
    goes_on = experiment.tuned is not None and experiment.tuned.protocol is not None
    if goes_on:
        runs = [run for run in runs if run.address in _complete_cells(requested, runs)]
    planned = sum(len(cell.runs) for cell in experiment.cells().values())
    if not runs or (len(runs) < planned and not goes_on):
        raise UserError(
            f"{planned - len(runs)} of {planned} runs of experiment {experiment.name} are missing under "
            f"'{requested.results}'; train them with: {requested.snakemake(f'{requested.target}_runs')}"
        )
    require_all_rounds(runs)
    if analyses and not goes_on:
        _check_analyses(requested)
    table = run_table(requested, runs, analyses=analyses)
    check_accuracies(table, f"experiment {experiment.name}")
    check_comparable(table, f"experiment {experiment.name}")
    found = Baselines(table, curve_table(requested, runs))
    if experiment.tuned is None:
        return found
    if (tuned := found.of_variant(TUNED)).runs.empty:
        raise UserError(
            f"experiment {experiment.name} has no cell that was tuned (allowed: at least one, with the values that "
            "fedflat tune writes to where)"
        )
    return tuned


def _complete_cells(requested: RequestedExperiment, runs: Sequence[FinishedRun]) -> set[CellAddress]:
    """The cells whose runs are all there."""
    counts = Counter(run.address for run in runs)
    return {cell.address for cell in requested.experiment.cells().values() if counts[cell.address] == len(cell.runs)}


def _check_analyses(requested: RequestedExperiment) -> None:
    """A `UserError` if an analysis is missing in cells to which it applies, but is named, or computed in others."""
    files = [file.with_name("analyses.yaml") for file in experiment_files(requested.name_or_file)]
    named = {key for file in files if file.is_file() for key in read_yaml(file)}
    for name in dict.fromkeys(ANALYSED.values()):
        try:
            cells = [CellAddress.of(path) for path in requested.analysed(name)]
        except UserError:  # the runs do not save what it needs
            continue
        missing = [cell.path for cell in cells if not requested.tidy.path(name, cell).is_file()]
        if missing and (name in named or len(missing) < len(cells)):
            command = requested.snakemake(f"{requested.target}_analysis_{name}")
            raise UserError(
                f"analysis {name} of experiment {requested.experiment.name} is missing in {len(missing)} of "
                f"{len(cells)} cells ({first_few(missing, 2)}); compute it with: {command}; or store no analyses, with "
                "--without-analyses"
            )


def _without(stored: Baselines, names: Iterable[str], added: Sequence[Baselines]) -> Baselines:
    """The stored runs that are neither of these experiments nor among the added ones."""
    keys = pd.concat([one.runs[KEY] for one in added])
    again = stored.runs[KEY].merge(keys, on=KEY, how="left", indicator=True)["_merge"] == "both"
    kept = stored.runs[~(again.to_numpy() | stored.runs["experiment"].isin(names).to_numpy())]
    return Baselines(kept, stored.curves.merge(kept[CURVE_IDS], on=CURVE_IDS))


def _check_distinct(runs: pd.DataFrame, place: Path) -> None:
    """A `UserError` if a run is there twice."""
    if (twice := runs.duplicated(KEY)).any():
        first = runs[twice].to_dict("records")[0]
        names = runs.loc[(runs[KEY] == pd.Series(first)[KEY]).all(axis=1), "experiment"]
        raise UserError(
            f"'{place}': {twice.sum()} runs are there already, such as {first['method']} ({first['variant']}) in "
            f"{place_of(first)} (experiments {' and '.join(dict.fromkeys(names))}); --replace replaces them"
        )


def _check_seeds(runs: pd.DataFrame, place: Path) -> None:
    """A `UserError` if a cell has too few seeds, or other seeds than another one of its setting.

    A search by a protocol goes on: its methods are searched one after another, and may have fewer seeds.
    """
    for _, setting in runs[~by_protocol(runs)].groupby(IDS[:3], sort=False):
        first: tuple[str, tuple[int, ...]] | None = None
        for (method, variant), rows in setting.groupby(["method", "variant"], sort=False):
            label, seeds = f"{method} ({variant})", tuple(sorted(rows["seed"]))
            where = Path(*rows[IDS[:3]].iloc[0])
            if len(seeds) < FEWEST_SEEDS:
                raise UserError(
                    f"'{place}': {label} has {len(seeds)} seed in {where} (allowed: at least {FEWEST_SEEDS} seeds)"
                )
            first = first or (label, seeds)
            if seeds != first[1]:
                raise UserError(
                    f"'{place}': {label} has {len(seeds)} seeds in {where}, and {first[0]} has {len(first[1])} "
                    "(allowed: the same seeds for all methods of a setting)"
                )
