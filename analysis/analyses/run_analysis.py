"""Computes one analysis of the runs in a folder, and writes the results to a tidy file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.analyses.provenance import (
    PROVENANCE_COLUMNS,
    TEXT_COLUMNS,
    analysis_fingerprint,
    name_value_pairs,
)
from fedflat.analysis.analyses.shared_rows import shared_rows
from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.results import METRICS, run_in
from fedflat.bench.files.csv_json import read_checked_csv, write_checked_csv
from fedflat.bench.host.progress import Progress
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.directories.shared_runs import TAKEN_FROM
from fedflat.bench.training.run_directory import CONFIG, RunDirectory, identified, is_complete

CELL_COLUMNS = ["experiment", *IDS]


@dataclass(frozen=True)
class CellRuns:
    """Finished runs of one cell by seed, and the values of `CELL_COLUMNS` that name the cell."""

    cell: Mapping[str, str]
    by_seed: Mapping[int, RunDirectory]

    @property
    def labels(self) -> tuple[str, str]:
        """The labels of the method and the partition."""
        return self.cell["method"], self.cell["partition"]


def find_runs(folder: Path) -> CellRuns:
    """The run in a run directory, or all runs in a cell's folder; a `UserError` if the folder is neither.

    The cell's metrics.csv names the cell; outside of a cell's folder, the run's configuration does.
    """
    if is_complete(folder):
        run = RunDirectory(folder)
        identity, names = _listed_runs(folder.parent).get(run.config.seed, (None, {}))
        return CellRuns(names if identity == run.identity else _names_by_config(run), {run.config.seed: run})
    listed = _listed_runs(folder)
    if not listed:
        raise UserError(
            f"'{folder}' is neither a run directory (with {CONFIG}) nor the folder of a cell (with {METRICS}); "
            "allowed is, for example, results/runs/quick/digits/dirichlet-0.1/4-of-20/fedsam"
        )
    runs = {seed: RunDirectory(run_in(folder, seed)) for seed in listed}
    for seed, (identity, _) in listed.items():
        if runs[seed].identity != identity:
            raise UserError(f"the configuration of '{runs[seed].path}' differs from '{folder / METRICS}'")
    return CellRuns(next(iter(listed.values()))[1], runs)


def _listed_runs(folder: Path) -> dict[int, tuple[str, dict[str, str]]]:
    """The identity and the cell of each run in a cell's metrics.csv, by seed; empty if there is no such file."""
    file, columns = folder / METRICS, [*CELL_COLUMNS, "seed", "identity"]
    if not file.is_file():
        return {}
    remedy = "repeat the command that trained the cell: it keeps finished runs, and writes this file again"
    rows = read_checked_csv(file, (), remedy, texts=TEXT_COLUMNS)
    if not {*columns} <= {*rows}:  # the metrics.csv of a single run has none of these columns
        return {}
    return {
        int(row["seed"]): (row["identity"], {column: row[column] for column in CELL_COLUMNS})
        for row in rows[columns].drop_duplicates().to_dict("records")
    }


def _names_by_config(run: RunDirectory) -> dict[str, str]:
    config = run.config
    labels = (config.dataset.label, config.partition.label, config.participation.label(config.partition.clients))
    return dict(zip(CELL_COLUMNS, ("custom", *labels, config.method.recipe.name), strict=True))


def run_analysis(
    analysis: Analysis,
    folder: Path,
    out: Path,
    device: torch.device,
    log: Progress,
    compare_with: Sequence[Path] = (),
) -> None:
    """Analyse the runs in a folder and write the tidy file.

    Its columns are: the columns that name a run, the columns of the analysis, `definition`, and `PROVENANCE_COLUMNS`. A
    run that diverged, or stopped at a target accuracy, has no rows, unless the analysis uses such runs. Rows that
    another experiment of the same results has are taken, and name its file in a further column. `compare_with`: folders
    with the runs of other methods or partitions, for analyses that compare runs.
    """
    cell, other_cells = find_runs(folder), [find_runs(other) for other in compare_with]
    tables = [
        pd.DataFrame(columns=[*CELL_COLUMNS, "identity", "seed", *analysis.columns, "definition", *PROVENANCE_COLUMNS])
    ]
    partial_results: list[Path] = []
    for seed in analysis.selected_seeds(list(cell.by_seed)):
        for other in other_cells:
            if seed not in other.by_seed:
                raise UserError(
                    f"{analysis.name} compares runs with the same seed: {other.cell['method']} lacks seed {seed}"
                )
        others = [AnalysedRun(other.by_seed[seed], device, log=log, labels=other.labels) for other in other_cells]
        partial_results.append(out.with_name(f".{out.stem}-seed-{seed}.unfinished"))
        run = AnalysedRun(cell.by_seed[seed], device, others, partial_results[-1], log, cell.labels)
        if (reason := _unusable(analysis, [run, *others])) is not None:
            log(f"seed {seed}: {reason}: no rows")
            continue
        analysis.check(run.config.evaluation)
        analysis.check_data(run.config.dataset)
        provenance, used = _provenance(analysis, run), [one.directory for one in (run, *others)]
        identity = run.directory.identity
        rows = shared_rows(out, used, {"identity": identity, "seed": seed, **provenance}, analysis.columns)
        if rows is None:
            rows = analysis.of_run(run).assign(**provenance)
        else:
            log(f"seed {seed}: taken from '{rows[TAKEN_FROM][0]}', which has the same run and options")
            rows = rows.drop(columns=[*CELL_COLUMNS, "identity", "seed"])
        tables.append(identified(rows, cell.cell, identity, seed))
    write_checked_csv(out, pd.concat(tables[1:] or tables, ignore_index=True))
    for file in partial_results:
        file.unlink(missing_ok=True)


def _provenance(analysis: Analysis, run: AnalysedRun) -> dict[str, str]:
    """The values of `PROVENANCE_COLUMNS`; a `UserError` if the compared runs are not those that the analysis needs."""
    compared = zip(analysis.compared_labels(), analysis.compared_runs(run), strict=True)
    identities = name_value_pairs((label, other.directory.identity) for label, other in compared)
    values = (name_value_pairs(analysis.options().items()), identities, analysis_fingerprint(analysis.name))
    return dict(zip(PROVENANCE_COLUMNS, values, strict=True))


def _unusable(analysis: Analysis, runs: Sequence[AnalysedRun]) -> str | None:
    """Why one of these runs has no model for the analysis; None if all have one."""
    for run in runs:
        if run.directory.stopped and not analysis.of_stopped:
            return f"'{run.directory.path}' stopped at its target accuracy"
        if analysis.of_diverged:
            continue
        if run.directory.diverged:
            return f"'{run.directory.path}' diverged"
        if not bool(run.w.isfinite().all()):
            return f"the final model of '{run.directory.path}' has parameters that are not finite"
    return None
