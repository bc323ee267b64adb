"""Trains stored runs of baselines again, from their stored configurations, and compares the numbers."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from analysis.comparison.baselines import Baselines
from analysis.comparison.run_table import RATED, ROUNDS_TO, FinishedRun, about, measured, rule_of
from bench.engine.settings import EngineSettings
from bench.experiments.address import IDS, CellAddress
from bench.experiments.experiment import own_experiment
from bench.experiments.files import experiment_names
from bench.experiments.results import run_in
from bench.experiments.run_config import RunConfig
from bench.files.text_table import aligned
from bench.host.progress import Progress
from bench.input.errors import UserError
from bench.training.engine_choice import EngineChoice
from bench.training.train import train_runs

TOLERANCE = {"accuracy": 3.0, "loss": 0.1}
"""Largest difference of an accuracy in points, and of a loss in units of the stored one, if other rounding is possible.

Rounding grows with the rounds. With another back end (the loop instead of the cohort), reported accuracies of bench1d
differed by up to 1.6 points, and losses by up to 0.03 of their values (docs/results.md), unless training is chaotic.
"""

DEVIATIONS = 3.0
"""A larger difference is allowed where it is at most this many standard deviations over the seeds of the cell: where
training is chaotic, other rounding gives another trajectory, as another seed does."""

_CELL = [*IDS, "variant"]

Row = Mapping[Any, Any]
"""A stored run: a row of `Baselines.runs`."""


@dataclass(frozen=True)
class Verdict:
    """What training a stored run again has shown. `differs`: the numbers differ by more than they may."""

    run: str
    stored: float
    again: float
    words: str
    differs: bool = False


def drawn(baselines: Baselines, count: int, seed: int) -> list[dict[Any, Any]]:
    """Rows of stored runs, drawn without replacement; all runs if there are fewer."""
    runs = baselines.runs
    chosen = np.random.default_rng(seed).permutation(len(runs))[:count]
    return runs.iloc[np.sort(chosen)].to_dict("records")


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
    seeds = _equal(baselines.runs, stored, [*_CELL, "configuration", "engine"]).to_dict("records")
    return [stored if run["seed"] == stored["seed"] else run for run in seeds] or [stored]


def _is_together(stored: Row) -> bool:
    return bool(json.loads(str(stored["engine"])).get("together"))


def verify(baselines: Baselines, stored: Row, device: torch.device, progress: Progress) -> Verdict:
    """Train a stored run of these baselines again in a temporary folder, and compare it with what is stored.

    Seeds that were trained together are trained together again.
    """
    address = CellAddress.of("/".join(str(stored[column]) for column in IDS))
    name = f"{run_in(Path(address.path), stored['seed'])} ({stored['variant']})"
    accuracy = float(stored["test_accuracy"])
    try:
        configs = [configuration(run) for run in _trained_together(baselines, stored)]
    except UserError as error:
        return Verdict(name, accuracy, nan, f"not verified: {error}")
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory(prefix="fedflat-baselines-") as folder:
        try:
            configs = [_as_computed(config, stored, device) for config in configs]
            runs = train_runs(configs, [run_in(Path(folder), config.seed) for config in configs], device, progress)
        finally:
            torch.set_num_threads(threads)
        run = next(run for run in runs if run.config.seed == stored["seed"])
        finished, final = FinishedRun(address, run), rule_of(str(stored["report"]))
        targets = [float(column.removeprefix(ROUNDS_TO)) for column in stored if str(column).startswith(ROUNDS_TO)]
        again = {**measured(finished, final, targets), **about(finished, final)}
    return Verdict(name, accuracy, float(again["test_accuracy"]), *_compared(stored, again, limits(baselines, stored)))


def configuration(stored: Row) -> RunConfig:
    """The configuration of a stored run; a `UserError` if this version of the code cannot read it, or reads another
    one."""
    content = json.loads(str(stored["configuration"]))
    if (content.get("method") or {}).get("code") or (content.get("model") or {}).get("code"):
        raise UserError("the method or the model is a Python file, which is not stored")
    try:
        config = RunConfig.parse({**content, "seed": int(stored["seed"])})
    except UserError as error:
        raise UserError(f"the stored configuration cannot be read by this version, or needs a file: {error}") from None
    if config.identity != stored["identity"]:
        raise UserError("this version reads the stored configuration as another one")
    return config


def has_changed(stored: Row) -> str | None:
    """How the experiment of a stored run has changed since, in words; None if it has not."""
    name = str(stored["experiment"])
    if name not in experiment_names():
        return f"experiment {name} is not in paper_tables"
    path = "/".join(str(stored[column]) for column in IDS)
    try:
        runs = own_experiment(name).cell(path).runs
    except UserError:
        return f"experiment {name} has no cell {path} any more"
    identities = {run.seed: run.identity for run in runs}
    changed = identities.get(int(stored["seed"])) != stored["identity"]
    return f"experiment {name} has other values for {path} now" if changed else None


def as_table(verdicts: Sequence[Verdict]) -> list[str]:
    """The verdicts as lines of text."""
    rows: list[tuple[str, ...]] = [("run", "stored", "again", "difference", "")]
    for one in verdicts:
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
        if not abs(again[name] - stored[name]) <= limit:
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
