"""Computes one analysis of runs: into the store, where each run has its own file, or into one file of the user."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as changed
from pathlib import Path
from types import MappingProxyType

import pandas as pd
import torch

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.analyses.found_runs import CellRuns, find_runs
from fedflat.analysis.analyses.pictures import store_pictures
from fedflat.analysis.analyses.provenance import (
    PROVENANCE_COLUMNS,
    TEXT_COLUMNS,
    TRAININGS,
    analysis_fingerprint,
    name_value_pairs,
)
from fedflat.analysis.analyses.stored import copy_of_code, stored_file
from fedflat.analysis.analyses.user_analysis import failed, rows_of
from fedflat.bench.experiments.sections.own_analysis import OwnAnalysis
from fedflat.bench.files.atomic import write_bytes
from fedflat.bench.files.checksums import DamagedFileError
from fedflat.bench.files.csv_json import read_checked_csv, write_checked_csv, write_csv
from fedflat.bench.files.locks import waiting_lock
from fedflat.bench.host.progress import Progress
from fedflat.bench.input.errors import UserError, raise_all
from fedflat.bench.training.lists import training
from fedflat.bench.training.run_directory import RunDirectory, identified


def store_analysis(
    analysis: Analysis,
    cell: CellRuns,
    device: torch.device,
    log: Progress,
    compare_with: Sequence[CellRuns] = (),
    *,
    replace: bool = False,
) -> dict[int, Path]:
    """Analyse the runs of a cell, each into its own file in the store, which are returned by seed.

    What is stored already is taken; with `replace`, unless other code computed it. Another process that computes the
    same is waited for. `compare_with`: runs of other methods or partitions, for analyses that compare runs. Errors, and
    runs without rows, as for `run_analysis`; an error about a damaged run is raised after the other runs are analysed.
    """
    found: dict[int, Path] = {}
    damaged: list[DamagedFileError] = []
    for run in _analysed_runs(analysis, cell, device, log, compare_with):
        try:
            _store_analysis(analysis, run, log, found, replace=replace)
        except DamagedFileError as error:
            damaged.append(error)
    raise_all(f"runs of '{cell.place}'", damaged)
    return found


def _store_analysis(
    analysis: Analysis, run: AnalysedRun, log: Progress, found: dict[int, Path], *, replace: bool
) -> None:
    provenance, (name, compared) = _provenance(analysis, run), _compared(analysis, run)
    trained = [training(other.directory.path) for other in analysis.compared_runs(run)]
    provenance |= {TRAININGS: " ".join(trained)} if trained else {}
    file, seed = stored_file(run.directory.path, analysis, name, compared), run.config.seed
    wanted = {"identity": run.directory.identity, **provenance}
    with waiting_lock(file, lambda: log(f"seed {seed}: waits for another process, which computes '{file}'")):
        remark = _remark(file, wanted, replace=replace)
        if remark is None:
            unfinished = file.with_name(f".{file.stem}.unfinished")
            table = _table(analysis, changed(run, partial_results=unfinished), provenance, log)
            table = store_pictures(file.parent, table, analysis.pictures)
            _write_with_run(file, table, run.directory, log, analysis.own)
            unfinished.unlink(missing_ok=True)
            log(f"seed {seed}: computed")
        else:
            log(f"seed {seed}: computed earlier{remark}")
    found[seed] = file


def _write_with_run(file: Path, table: pd.DataFrame, run: RunDirectory, log: Progress, own: OwnAnalysis | None) -> None:
    """Write an analysis of a run next to it, and a copy of a user's file that has computed it.

    A `UserError` if the run was trained again, or removed, meanwhile.
    """
    with waiting_lock(run.path, lambda: log(f"waits for another process, which uses '{run.path}'")):
        if RunDirectory(run.path).provenance != run.provenance:
            raise UserError(f"'{run.path}' was trained again meanwhile: repeat the command")
        if own is not None:
            write_bytes(copy_of_code(file), own.source())
        write_checked_csv(file, table)


def run_analysis(
    analysis: Analysis,
    folder: Path,
    out: Path,
    device: torch.device,
    log: Progress,
    compare_with: Sequence[Path] = (),
) -> None:
    """Analyse the runs of a folder (see `find_runs`) into one file, which is replaced.

    Its columns are: those that name a run, the columns of the analysis, `definition`, and `PROVENANCE_COLUMNS`. A run
    that diverged, or stopped early, has no rows, unless the analysis uses such runs. `compare_with`:
    folders with the runs of other methods or partitions.
    """
    tables, partial_results = list[pd.DataFrame](), list[Path]()
    cell, *others = map(find_runs, (folder, *compare_with))
    for run in _analysed_runs(analysis, cell, device, log, others):
        partial_results.append(out.with_name(f".{out.stem}-seed-{run.config.seed}.unfinished"))
        with_partial = changed(run, partial_results=partial_results[-1])
        tables.append(_table(analysis, with_partial, _provenance(analysis, run), log, cell.names))
    rows = [table for table in tables if not table.empty]
    table = pd.concat(rows or tables, ignore_index=True)
    write_csv(out, store_pictures(out.parent, table, analysis.pictures))
    for file in partial_results:
        file.unlink(missing_ok=True)


def _analysed_runs(
    analysis: Analysis, cell: CellRuns, device: torch.device, log: Progress, compare_with: Sequence[CellRuns]
) -> Iterator[AnalysedRun]:
    """The runs of a cell that the analysis selects, each with those of the same seed with which it is compared."""
    for seed in analysis.selected_seeds(list(cell.by_seed)):
        for other in compare_with:
            if seed not in other.by_seed:
                raise UserError(
                    f"{analysis.name} compares runs with the same seed: {other.names['method']} lacks seed {seed}"
                )
        others = [AnalysedRun(other.by_seed[seed], device, log=log, labels=other.labels) for other in compare_with]
        yield AnalysedRun(cell.by_seed[seed], device, others, None, log, cell.labels)


def _table(
    analysis: Analysis,
    run: AnalysedRun,
    provenance: Mapping[str, str],
    log: Progress,
    names: Mapping[str, str] = MappingProxyType({}),
) -> pd.DataFrame:
    """The rows of a run, with the columns that identify it; none if it has no model for the analysis."""
    identity, seed = run.directory.identity, run.config.seed
    if (reason := _unusable(analysis, [run, *run.compared_with])) is not None:
        log(f"seed {seed}: {reason}: no rows")
        return pd.DataFrame(columns=[*names, "identity", "seed", *analysis.columns, "definition", *PROVENANCE_COLUMNS])
    analysis.check(run.config.evaluation)
    analysis.check_data(run.config.dataset)
    return identified(_rows(analysis, run).assign(**provenance), identity, seed, names)


def _rows(analysis: Analysis, run: AnalysedRun) -> pd.DataFrame:
    """What the analysis computes; errors of a user's analysis are `UserError`s of one line."""
    if analysis.own is None:
        return analysis.of_run(run)
    try:
        return rows_of(analysis, analysis.of_run(run))
    except (Exception, SystemExit) as error:
        raise failed(analysis.own, error) from None


def _remark(file: Path, wanted: Mapping[str, str], *, replace: bool) -> str | None:
    """What is to be said of a stored analysis that is taken; None if it is missing, damaged, or to be replaced."""
    try:
        rows = read_checked_csv(file, [*wanted], "", texts=TEXT_COLUMNS) if file.is_file() else None
    except UserError:
        return None
    if rows is None or rows.empty:
        return None
    of_this_code = bool((rows["code"] == wanted["code"]).all())
    same = all((rows[name].fillna("") == value).all() for name, value in wanted.items() if name != "code")
    if not same or (replace and not of_this_code):
        return None
    return "" if of_this_code else " by another version of the code; --replace computes it again"


def _compared(analysis: Analysis, run: AnalysedRun) -> tuple[str, list[tuple[str, str]]]:
    """The label of a run among those with which it is compared, and the labels and identities of these.

    A `UserError` if they are not those that the analysis needs.
    """
    labels = analysis.compared_labels()
    others = [other.directory.identity for other in analysis.compared_runs(run)]
    return run.name_among(labels), list(zip(labels, others, strict=True))


def _provenance(analysis: Analysis, run: AnalysedRun) -> dict[str, str]:
    """The values of `PROVENANCE_COLUMNS`; errors as for `_compared`."""
    identities = name_value_pairs(_compared(analysis, run)[1])
    values = (name_value_pairs(analysis.inputs().items()), identities, analysis_fingerprint(analysis.name))
    return dict(zip(PROVENANCE_COLUMNS, values, strict=True))


def _unusable(analysis: Analysis, runs: Sequence[AnalysedRun]) -> str | None:
    """Why one of these runs has no model for the analysis; None if all have one."""
    for run in runs:
        if run.directory.stopped and not analysis.of_stopped:
            return f"'{run.directory.path}' stopped early"
        if analysis.of_diverged:
            continue
        if run.directory.diverged:
            return f"'{run.directory.path}' diverged"
        if not bool(run.w.isfinite().all()):
            return f"the final model of '{run.directory.path}' has parameters that are not finite"
    return None
