"""Trains stored runs of baselines again, from their stored configurations, and compares the numbers.

Seeds of a cell that were trained together are trained together again, and all of them are compared. With the same
code, libraries, processor and engine's choice, the bits must be the same. Otherwise two rules judge a cell:

- Each run: the difference of each accuracy and loss is at most `TOLERANCE`, or `DEVIATIONS` standard deviations over
  the stored seeds of the cell.
- The mean over the seeds of the differences of test accuracy and test loss is at most `TOLERANCE_OF_MEAN`, or the
  largest one that a paired t-test at the level `LEVEL` accepts: t(1 - LEVEL / 4, n - 1) s / sqrt(n), where s is the
  standard deviation of the n differences. The two numbers share the level.

Where training is chaotic, other rounding gives another trajectory, as another seed does. The differences then have up
to sqrt(2) times the spread of the seeds. There, the second rule is wrong in at most 1 % of cells. The first one judges
four numbers of each run: by simulation of normal numbers, it is wrong in 8 % of cells with ten seeds, 14 % with six,
and 37 % with three if the four are independent; with ten seeds, in 3 to 7 % if they correlate as in the cells of
bench1d.
"""

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import t as student_t

from fedflat.analysis.comparison.baselines import Baselines, stored_experiment
from fedflat.analysis.comparison.run_table import FinishedRun, about, measured, rule_of
from fedflat.analysis.layouts.run_columns import RATED, ROUNDS_TO
from fedflat.bench.engine.settings import EngineSettings
from fedflat.bench.experiments.address import IDS, CellAddress
from fedflat.bench.experiments.experiment import own_experiment
from fedflat.bench.experiments.files import experiment_names
from fedflat.bench.experiments.results import run_in
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.stored_config import code_sections
from fedflat.bench.files.text_table import aligned
from fedflat.bench.host.progress import Progress
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.train import train_runs

TOLERANCE = {"accuracy": 3.0, "loss": 0.1}
"""Largest difference of an accuracy in points, and of a loss in units of the stored one, if other rounding is possible.

Rounding grows with the rounds. With another back end (the loop instead of the cohort), reported accuracies of bench1d
differed by up to 1.6 points, and losses by up to 0.03 of their values (docs/results.md), unless training is chaotic.
"""

DEVIATIONS = 5.0
"""A larger difference of a run is allowed where it is at most this many standard deviations over the seeds of the
cell."""

TOLERANCE_OF_MEAN = {"accuracy": 1.0, "loss": 0.05}
"""The same for the mean over the seeds of a cell."""

LEVEL = 0.01
"""How often the mean over the seeds of a cell is called different by chance, at most."""

JUDGED_MEANS = ("test_accuracy", "test_loss")
"""The numbers whose mean over the seeds is judged."""

FEWEST = 2
"""The fewest seeds with a mean difference that is judged."""

_CELL = [*IDS, "variant"]
_TOGETHER = [*_CELL, "configuration", "engine"]
"""Columns that are equal for seeds that were trained together."""

Row = Mapping[Any, Any]
"""A stored run: a row of `Baselines.runs`."""


@dataclass(frozen=True)
class RetrainedRun:
    """What training a stored run again has shown, or all seeds of a cell (`of_mean`).

    `differs`: the numbers differ by more than they may.
    """

    run: str
    stored: float
    again: float
    words: str
    differs: bool = False
    of_mean: bool = False


def drawn(baselines: Baselines, count: int, seed: int) -> list[Row]:
    """Rows of stored runs, drawn without replacement; all if there are fewer. No two of them were trained together."""
    runs = baselines.runs
    chosen: dict[tuple[str, ...], int] = {}
    for position in np.random.default_rng(seed).permutation(len(runs)):
        row = runs.iloc[position]
        own = () if _is_together(row) else (str(row["seed"]),)
        chosen.setdefault((*(str(row[name]) for name in _TOGETHER), *own), int(position))
        if len(chosen) == count:
            break
    return [dict(row) for row in runs.iloc[sorted(chosen.values())].to_dict("records")]


def limits(baselines: Baselines, stored: Row) -> dict[str, float]:
    """The largest allowed difference of each accuracy and loss of a stored run, if other rounding is possible."""
    cell, allowed = _equal(baselines.runs, stored, _CELL), {}
    for name in RATED:
        kind = name.rpartition("_")[2]
        fixed = TOLERANCE[kind] * (abs(float(stored[name])) if kind == "loss" else 1)
        spread = DEVIATIONS * float(cell[name].std())
        allowed[name] = spread if spread > fixed else fixed
    return allowed


def _equal(runs: pd.DataFrame, stored: Row, columns: Sequence[str]) -> pd.DataFrame:
    """The runs that have the values of a stored one in these columns."""
    return runs[(runs[columns] == pd.Series({name: stored[name] for name in columns})).all(axis=1)]


def _trained_together(baselines: Baselines, stored: Row) -> list[Row]:
    """The stored runs whose seeds shared a cohort with this one, which changes its last bits; else only this one."""
    if not _is_together(stored):
        return [stored]
    seeds = _equal(baselines.runs, stored, _TOGETHER).to_dict("records")
    return [stored if run["seed"] == stored["seed"] else run for run in seeds] or [stored]


def _is_together(stored: Row) -> bool:
    return bool(json.loads(str(stored["engine"])).get("together"))


def verify(baselines: Baselines, stored: Row, device: torch.device, progress: Progress) -> list[RetrainedRun]:
    """Train a stored run of these baselines again in a temporary folder, and compare it with what is stored.

    Seeds that were trained together are trained together again: one result for each of them, and one for their mean
    where bits may differ.
    """
    address = CellAddress.of("/".join(str(stored[column]) for column in IDS))
    rows = _trained_together(baselines, stored)
    try:
        configs = [configuration(run) for run in rows]
    except UserError as error:
        return [RetrainedRun(_name(stored), float(stored["test_accuracy"]), nan, f"not verified: {error}")]
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory(prefix="fedflat-baselines-") as folder:
        try:
            configs = [_as_computed(config, stored, device) for config in configs]
            runs = train_runs(configs, [run_in(Path(folder), config.seed) for config in configs], device, progress)
        finally:
            torch.set_num_threads(threads)
        final = rule_of(str(stored["report"]))
        targets = [float(column.removeprefix(ROUNDS_TO)) for column in stored if str(column).startswith(ROUNDS_TO)]
        finished = [FinishedRun(address, run) for run in runs]
        again = [{**measured(run, final, targets), **about(run, final)} for run in finished]
    retrained = [
        RetrainedRun(
            _name(row), float(row["test_accuracy"]), float(new["test_accuracy"]), *_compared(row, new, allowed)
        )
        for row, new, allowed in zip(rows, again, (limits(baselines, row) for row in rows), strict=True)
    ]
    return [*retrained, *_verdict_of_mean(rows, again)]


def _name(stored: Row) -> str:
    path = "/".join(str(stored[column]) for column in IDS)
    return f"{run_in(Path(path), stored['seed'])} ({stored['variant']})"


def _verdict_of_mean(rows: Sequence[Row], again: Sequence[Mapping[str, Any]]) -> list[RetrainedRun]:
    """The verdict on the mean over the seeds; none if the bits are the same or must be, or for fewer than two seeds."""
    pairs = [(row, new) for row, new in zip(rows, again, strict=True) if _reasons(row, new)]
    both = {name: np.array([(row[name], new[name]) for row, new in pairs], dtype=float) for name in JUDGED_MEANS}
    both = {name: values[np.isfinite(values).all(axis=1)] for name, values in both.items() if pairs}
    if not both or min(map(len, both.values())) < FEWEST or all((v[:, 0] == v[:, 1]).all() for v in both.values()):
        return []
    limit = {name: limit_of_mean(name, values) for name, values in both.items()}
    difference = {name: float((values[:, 1] - values[:, 0]).mean()) for name, values in both.items()}
    accuracy = both["test_accuracy"]
    name = f"{_name(rows[0]).partition('/seed-')[0]}/mean of {len(accuracy)} seeds ({rows[0]['variant']})"
    words = f"within the tolerance, {limit['test_accuracy']:.1f} points"
    if wrong := [one for one in both if not abs(difference[one]) <= limit[one]]:
        words = (
            f"DIFFERS: mean {wrong[0]} by {difference[wrong[0]]:+.3g}, more than the tolerance {limit[wrong[0]]:.3g}"
        )
    stored, now = accuracy.mean(axis=0)
    return [RetrainedRun(name, float(stored), float(now), words, differs=bool(wrong), of_mean=True)]


def limit_of_mean(measure: str, both: np.ndarray) -> float:
    """The largest allowed mean difference, given the stored and the new value of each seed `[seeds, 2]`."""
    kind = measure.rpartition("_")[2]
    fixed = TOLERANCE_OF_MEAN[kind] * (abs(both[:, 0].mean()) if kind == "loss" else 1)
    count = len(both)
    quantile = student_t.ppf(1 - LEVEL / len(JUDGED_MEANS) / 2, count - 1)
    return max(float(fixed), float(quantile * (both[:, 1] - both[:, 0]).std(ddof=1) / math.sqrt(count)))


def configuration(stored: Row) -> RunConfig:
    """The configuration of a stored run; a `UserError` if this version of the code cannot read it, or reads another
    one."""
    content = json.loads(str(stored["configuration"]))
    if code := code_sections(content):
        raise UserError(f"the {' and the '.join(code)} is a Python file, which is not stored")
    try:
        config = RunConfig.parse({**content, "seed": int(stored["seed"])})
    except UserError as error:
        raise UserError(f"the stored configuration cannot be read by this version, or needs a file: {error}") from None
    if config.identity != stored["identity"]:
        raise UserError("this version reads the stored configuration as another one")
    return config


def has_changed(stored: Row, folder: Path) -> str | None:
    """How the experiment of a stored run has changed since, in words; None if it has not.

    `folder`: that of the stored runs, which has the files of experiments with tuned values.
    """
    name = str(stored["experiment"])
    known = name in experiment_names()
    file = stored_experiment(folder, name)
    if not known and not file.is_file():
        return f"experiment {name} is neither in paper_tables nor in '{folder}'"
    path = "/".join(str(stored[column]) for column in IDS)
    try:
        runs = own_experiment(name if known else str(file)).cell(path).runs
    except UserError:
        return f"experiment {name} has no cell {path} any more"
    identities = {run.seed: run.identity for run in runs}
    changed = identities.get(int(stored["seed"])) != stored["identity"]
    return f"experiment {name} has other values for {path} now" if changed else None


def as_table(retrained: Sequence[RetrainedRun]) -> list[str]:
    """The retrained runs as lines of text."""
    rows: list[tuple[str, ...]] = [("run", "stored", "again", "difference", "")]
    for one in retrained:
        numbers = (one.stored, one.again, one.again - one.stored)
        rows.append((one.run, *("–" if isnan(number) else f"{number:.2f}" for number in numbers), one.words))
    return aligned(rows, right={1, 2, 3})


def _as_computed(config: RunConfig, stored: Row, device: torch.device) -> RunConfig:
    """The configuration with the engine's choice of the stored run, as far as it is possible on the device."""
    try:
        choice = EngineChoice.from_json(json.loads(str(stored["engine"])))
    except ValueError:  # of another version
        return config
    if not choice.is_possible_on(device):
        return config
    torch.set_num_threads(min(choice.threads, torch.get_num_threads()))
    engine = EngineSettings(
        backend=choice.backend,
        seeds="together" if choice.together else "apart",
        layout="channels_last" if choice.channels_last else "contiguous",
        convolution="im2col" if choice.im2col else "grouped",
    )
    return config.model_copy(update={"engine": engine})


def _compared(stored: Row, again: Mapping[str, Any], allowed: Mapping[str, float]) -> tuple[str, bool]:
    """The verdict in words, and whether the numbers differ by more than they may."""
    for column, what in (("data_hash", "data"), ("partition_hash", "partition"), ("outcome", "outcome")):
        if again[column] != stored[column]:
            return f"DIFFERS: {what} {stored[column]} stored, {again[column]} now", True
    exact = [*RATED, "last_round", "gradients", *(name for name in again if name.startswith(ROUNDS_TO))]
    other = [name for name in exact if not _same(stored[name], again[name])]
    reasons = ", ".join(_reasons(stored, again))
    if not other:
        return "same bits" + (f" ({reasons})" if reasons else ""), False
    if not reasons:
        unless = " if one command trained all seeds of the cell" if _is_together(stored) else ""
        return f"DIFFERS: {_both(other[0], stored, again)}, though the bits must be the same{unless}", True
    for name, limit in allowed.items():
        if not _same(again[name], stored[name]) and not abs(again[name] - stored[name]) <= limit:
            return f"DIFFERS: {_both(name, stored, again)}, more than the tolerance {limit:.3g} ({reasons})", True
    return f"within the tolerance, {allowed['test_accuracy']:.1f} points ({reasons})", False


def _same(one: float, other: float) -> bool:
    return one == other or (isnan(one) and isnan(other))


def _both(name: str, stored: Row, again: Mapping[str, Any]) -> str:
    return f"{name} {stored[name]!r} stored, {again[name]!r} now"


def _reasons(stored: Row, again: Mapping[str, Any]) -> list[str]:
    """Why the bits need not be the same, in words."""
    found = []
    for column, words in (("code", "other code"), ("device", "another device"), ("processor", "another processor")):
        if again[column] != stored[column]:
            found.append(words)
    there, here = (json.loads(str(row["versions"])) for row in (stored, again))
    found += [f"{name} {there.get(name)} instead of {here[name]}" for name in here if there.get(name) != here[name]]
    choices = [{**json.loads(str(row["engine"])), "together": False} for row in (stored, again)]
    return [*found, "another choice of the engine"] if choices[0] != choices[1] else found
