"""Stored baselines: the final metrics of an experiment's finished runs, one CSV per grid, committed with the code.

One row per run and metric. Two runs can only be compared if their columns `protocol`, `partition_hash` and `data_hash`
are equal.
"""

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.run_table import AMOUNT, STEPS, as_json, protocol
from analysis.layouts.titles import method_titles
from analysis.measures.convergence import Better
from analysis.report.requested import RequestedExperiment
from bench.experiments.address import IDS
from bench.experiments.results import ResultPaths, run_in
from bench.experiments.run_config import AMOUNTS
from bench.files.csv_json import read_checked_csv, write_checked_csv
from bench.input.errors import UserError, unknown
from bench.input.frozen import NAME
from bench.training.run_directory import RunDirectory, finished_run

STORED_METRICS: dict[str, Better] = {
    "test_accuracy": "higher",
    "test_loss": "lower",
    "train_loss": "lower",
    "train_accuracy": "higher",
}
"""The stored metrics of a run's last evaluation, and whether higher or lower values are better."""

PAIR = [*IDS[:3], "seed"]
"""Columns that are equal for the two runs of a pair."""

SHARED = ["protocol", "partition_hash", "data_hash"]
"""Columns in which the two runs of a pair must not differ."""

COLUMNS = [
    *IDS[:3], "method", "title", "seed", "metric", "value", "outcome", "last_round",
    "model", *AMOUNT, "hyperparameters", "training",
    "identity", *SHARED, "code", "device",
]  # fmt: skip
NUMBERS = {"seed": int, "value": float, "last_round": int, "rounds": int, "batch_size": int}

Row = Mapping[Hashable, Any]
"""One row of a frame, by columns."""


def run_rows(run: RunDirectory, ids: Mapping[str, str], title: str) -> pd.DataFrame:
    """The rows of one finished run: its metrics after the last round, NaN if it diverged.

    A `UserError` if it stopped before the last round.
    """
    config, provenance = run.config, run.provenance
    if run.stopped:
        raise UserError(f"'{run.path}' stopped at its target accuracy: a comparison needs runs of all rounds")
    config.evaluation.require_test(f"a comparison with '{run.path}'")
    last = run.metrics().iloc[-1]
    code = provenance["code"]
    about = {
        **ids,
        "title": title,
        "seed": config.seed,
        "outcome": provenance["outcome"],
        "last_round": int(last["round"]),
        "model": config.model.label,
        "rounds": config.training.rounds,
        **{name: _text(getattr(config.training, name)) for name in AMOUNTS},
        "batch_size": config.training.batch_size,
        "hyperparameters": as_json(config.method.hyperparameters),
        "training": as_json(config.training.model_dump(mode="json", include=STEPS, exclude_none=True)),
        "identity": run.identity,
        "protocol": protocol(config),
        "partition_hash": provenance.get("partition_hash"),
        "data_hash": provenance.get("data_hash"),
        "code": f"{code.get('version')}+{code['fingerprint']}",
        "device": provenance.get("device"),
    }
    values = [{"metric": name, "value": np.nan if run.diverged else float(last[name])} for name in STORED_METRICS]
    return pd.DataFrame([{**about, **value} for value in values])[COLUMNS]


def collect(requested: RequestedExperiment) -> pd.DataFrame:
    """The rows of all runs of an experiment; a `UserError` if a run is missing or if methods cannot be compared."""
    experiment = requested.experiment
    names, frames, missing, planned = method_titles(experiment), [], 0, 0
    for cell in experiment.cells().values():
        for config in cell.runs:
            planned += 1
            run = finished_run(requested.paths.run(experiment.name, cell.path, config.seed), config)
            if run is None:
                missing += 1
            elif not missing:
                frames.append(run_rows(run, cell.address.columns, names[cell.address.method]))
    if missing:
        raise UserError(
            f"{missing} of {planned} runs of experiment {experiment.name} are missing under '{requested.results}'; "
            f"train them with: {requested.snakemake(f'{requested.target}_runs')}"
        )
    rows = pd.concat(frames, ignore_index=True)
    _check_comparable(rows, f"experiment {experiment.name}")
    return rows


def store(requested: RequestedExperiment, grid: str, out: Path | None = None) -> Path:
    """Write the baselines of a grid atomically; return the file."""
    if not re.fullmatch(NAME, grid):
        raise UserError(f"--grid '{grid}': allowed are lower-case letters, digits and '_'")
    file = out or ResultPaths().baselines(grid)
    write_checked_csv(file, collect(requested))
    return file


def load(grid: str, file: Path | None = None) -> pd.DataFrame:
    """The stored baselines of a grid; if there are none, a `UserError` names the stored grids and the command."""
    default = ResultPaths().baselines(grid)
    place = file or default
    if not place.is_file():
        stored = sorted(found.stem for found in default.parent.glob("*.csv"))
        if file is None and stored:
            raise unknown("grid of stored baselines", grid, stored)
        raise UserError(
            f"no stored baselines at '{place}' (stored grids: {', '.join(stored) or 'none'}); "
            f"store them with: fedflat baselines EXPERIMENT --grid {grid}{_out(file)}"
        )
    rows = read_checked_csv(
        place,
        [column for column in COLUMNS if column != "local_steps"],  # older files have epochs only
        f"store them again with: fedflat baselines EXPERIMENT --grid {grid}{_out(file)}",
        texts=[column for column in COLUMNS if column not in NUMBERS],
        whole=[column for column, kind in NUMBERS.items() if kind is int],
        keys=[*PAIR, "method", "metric"],
        keep_default_na=False,
        na_values={"value": [""]},
    ).reindex(columns=COLUMNS, fill_value="")
    _check_comparable(rows, f"'{place}'")
    return rows


def _out(file: Path | None) -> str:
    """The option that stores baselines in this file; empty for the default file."""
    return "" if file is None else f" --out {file}"


def difference(one: Row, other: Row, names: tuple[str, str]) -> str | None:
    """Why two runs, called by their `names`, cannot be compared, in words; None if they can."""

    def differing(what: str, column: str) -> str:
        return f"{what}: {one[column] or 'none'} {names[0]}, {other[column] or 'none'} {names[1]}"

    if one["protocol"] != other["protocol"]:
        for name in ("model", *AMOUNT):
            if one[name] != other[name]:
                return differing(name, name)
        return "options of data set, partition, participation or augmentation"
    if one["data_hash"] != other["data_hash"]:
        return differing("content of the data set", "data_hash")
    if one["partition_hash"] != other["partition_hash"]:
        return differing("content of the partition", "partition_hash")
    return None


def place_of(row: Row) -> str:
    """Setting and seed of a run, for messages: digits/dirichlet-0.1/4-of-20/seed-0."""
    return str(run_in(Path(row["dataset"], row["partition"], row["participation"]), row["seed"]))


def _check_comparable(rows: pd.DataFrame, where: str) -> None:
    """A `UserError` if two methods with the same setting and seed cannot be compared."""
    for _, group in rows.drop_duplicates([*PAIR, "method"]).groupby(PAIR, sort=False):
        first, *others = group.to_dict("records")
        for other in others:
            why = difference(first, other, (f"in {first['method']}", f"in {other['method']}"))
            if why is not None:
                raise UserError(
                    f"{where}: {first['method']} and {other['method']} cannot be compared in {place_of(first)} ({why})"
                )


def _text(count: int | None) -> str:
    return "" if count is None else str(count)
