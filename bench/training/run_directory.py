"""The run directory: the files of a finished run, and how they are read.

config.json           the RunConfig
metrics.csv           one row per round
clients.csv.gz        accuracy of each client at each evaluation, with evaluation.by_client
times.csv             seconds of training and of evaluation in each round; no other table contains times
final.safetensors     the last global model; with SWA, the average
method.py, model.py, dataset.py   copies of user-defined files, if the run uses them
analyses/             analyses of the run, which are computed later
snapshots/            complete states, every evaluation.snapshot_every rounds; equal vectors of clients are stored once
local_models/         the participants' models w_i⁺, and the global model, after the rounds evaluation.local_models
partition.csv.gz      client, index, label of every training image of every client
provenance.json       outcome, code, libraries, device, hashes, time, memory
run.log
"""

import functools
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import BaseModel, ValidationError

from fedflat.bench.code.trusted_code import UntrustedCodeError
from fedflat.bench.data.dataset import Labels
from fedflat.bench.data.partitions.base import Indices, partition_hash
from fedflat.bench.engine.checkpoint import OF_ANOTHER_RUN, Models, load_state
from fedflat.bench.engine.federation import FederationState
from fedflat.bench.experiments.results import METRICS, PARTITION
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.sections.evaluation import TEST, TRAIN, VALIDATION
from fedflat.bench.experiments.stored_config import with_own_code
from fedflat.bench.files.checksums import DamagedFileError, damage_in_one_line
from fedflat.bench.files.column_file import integers, read_columns
from fedflat.bench.files.csv_json import read_checked_csv, read_checked_json
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import explain
from fedflat.bench.metrics import EVERYWHERE
from fedflat.bench.training.client_accuracies import COLUMNS
from fedflat.bench.training.code_version import code_fingerprint

CONFIG, PROVENANCE, TIMES = "config.json", "provenance.json", "times.csv"
FINAL, LOG, BY_CLIENT = "final.safetensors", "run.log", "clients.csv.gz"
SNAPSHOTS, LOCAL_MODELS = "snapshots", "local_models"
"""Names of files and folders in a run directory, in addition to those of `ResultPaths`."""

TRAIN_AGAIN = "repeat the command that trained the run, with --replace"
"""What to do about a damaged run."""

TIMES_COLUMNS = ("round", "train_seconds", "evaluation_seconds")
"""The columns of times.csv."""


def metrics_columns(subset: str) -> tuple[str, ...]:
    """The columns of metrics.csv, to which a method may add others; `subset` as for `Evaluation.subset`."""
    return (
        "round", "active", "lr", "local_loss", "client_drift",
        "download", "upload", "client_state", "server_state", "gradients",
        *(f"{part}_{name}" for part in (TRAIN, subset) for name in EVERYWHERE), "diverged",
    )  # fmt: skip


def evaluated_subset(metrics: pd.DataFrame) -> str:
    """The subset by which the runs of a table of metrics were judged: test, or validation without test."""
    has_test = f"{TEST}_accuracy" in metrics
    return VALIDATION if f"{VALIDATION}_accuracy" in metrics and not has_test else TEST


class _Code(BaseModel):
    version: str | None = None
    fingerprint: str


class _Provenance(BaseModel):
    """The entries of provenance.json that are read again."""

    outcome: Literal["finished", "diverged", "stopped"]
    identity: str
    code: _Code
    data_hash: str | None = None
    model_hash: str | None = None
    missing_images: int = 0
    partition_hash: str | None = None
    tables: dict[str, str] = {}
    device: str | None = None
    libraries: dict[str, str | None] = {}
    process_peak_memory_mib: float | None = None
    peak_gpu_memory_mib: float | None = None


class RunDirectory:
    """A finished run, read-only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not is_complete(path):
            if (path / PROVENANCE).is_file():
                raise DamagedFileError(path / CONFIG, "it does not exist", self.remedy)
            raise UserError(f"'{path}' is not a run directory (it has no {CONFIG})")

    @property
    def remedy(self) -> str:
        """What to do about a damaged file, in words."""
        return TRAIN_AGAIN

    @functools.cached_property
    def config(self) -> RunConfig:
        """The run's configuration, with the paths of the run's copies of user-defined code: originals may change.

        Reading it executes the method's code. An `UntrustedCodeError` if code of the run is not trusted.
        """
        data = read_checked_json(self.path / CONFIG, self.remedy)
        try:
            config = RunConfig.parse(with_own_code(data, self.path))
        except UntrustedCodeError:
            raise
        except UserError as error:
            if self.of_this_code:
                raise DamagedFileError(self.path / CONFIG, error, self.remedy) from None
            raise UserError(f"'{self.path / CONFIG}' is of another version or damaged: {error}") from None
        if config.identity != self.identity:
            raise DamagedFileError(
                self.path / CONFIG, f"its identity differs from the one in {PROVENANCE}", self.remedy
            )
        return config

    @functools.cached_property
    def provenance(self) -> dict[str, Any]:
        """The content of provenance.json, which describes how and where the run was computed."""
        data = read_checked_json(self.path / PROVENANCE, self.remedy)
        try:
            _Provenance.model_validate(data)
        except ValidationError as error:
            raise DamagedFileError(self.path / PROVENANCE, explain(error)[0], self.remedy) from None
        return data

    @property
    def identity(self) -> str:
        """The identity of the run's configuration, even if this version of the code cannot read the configuration."""
        return str(self.provenance["identity"])

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the code that trained the run."""
        return str(self.provenance["code"]["fingerprint"])

    @property
    def of_this_code(self) -> bool:
        """Whether the run was trained by the current code."""
        return self.fingerprint == code_fingerprint()

    @property
    def missing_images(self) -> int:
        """How many images of its published data set were missing; 0 in runs of versions that did not record it."""
        return int(self.provenance.get("missing_images", 0))

    @property
    def diverged(self) -> bool:
        """Whether the run ended because it diverged, as fedflat.bench.engine.divergence defines."""
        return bool(self.provenance["outcome"] == "diverged")

    @property
    def stopped(self) -> bool:
        """Whether the run ended before its last round because it reached `evaluation.until`."""
        return bool(self.provenance["outcome"] == "stopped")

    def metrics(self) -> pd.DataFrame:
        """One row per finished round."""
        table = self._table(METRICS, ())
        if missing := [name for name in metrics_columns(evaluated_subset(table)) if name not in table]:
            raise DamagedFileError(self.path / METRICS, f"it lacks the column {missing[0]}", self.remedy)
        return table

    def times(self) -> pd.DataFrame:
        """`train_seconds` and `evaluation_seconds` of each `round`; NaN where the model was not evaluated."""
        return self._table(TIMES, TIMES_COLUMNS)

    def client_accuracies(self) -> pd.DataFrame:
        """The `accuracy` in percent of each `client` after each evaluated `round`, as `evaluation.by_client` says.

        A `UserError` if the run did not store them. NaN: the client has no images on which it could be measured.
        """
        if not self.has_client_accuracies:
            raise UserError(
                f"'{self.path}' stored no accuracies of clients (set evaluation.by_client: expected, or own)"
            )
        whole = ["round", "client"]
        table = read_checked_csv(self.path / BY_CLIENT, COLUMNS, self.remedy, whole=whole, keys=whole)
        self.check_recorded(BY_CLIENT)
        return table.astype({"accuracy": float})

    @property
    def has_client_accuracies(self) -> bool:
        """Whether the run stored the accuracy of each client."""
        return self.has_recorded(BY_CLIENT)

    def _table(self, name: str, columns: Sequence[str]) -> pd.DataFrame:
        table = read_checked_csv(
            self.path / name, columns, self.remedy, whole=["round"], keys=["round"], is_recorded=self.has_recorded(name)
        )
        if table.empty:
            raise DamagedFileError(self.path / name, "it has no rows", self.remedy)
        self.check_recorded(name)
        return table

    def has_recorded(self, name: str) -> bool:
        """Whether the provenance has the hash of a table; that of earlier versions has not."""
        return name in self.provenance.get("tables", {})

    def check_recorded(self, name: str) -> None:
        """A `DamagedFileError` if a table is missing, or not the one that was recorded; nothing is parsed."""
        file, recorded = self.path / name, self.provenance.get("tables", {}).get(name)
        with damage_in_one_line(file, self.remedy):
            found = short_hash(file.read_bytes())
        if recorded not in (None, found):  # earlier versions did not record it
            raise DamagedFileError(
                file, f"it {OF_ANOTHER_RUN}, or was edited: {PROVENANCE} has another hash", self.remedy
            )

    def split(self) -> list[Indices]:
        """The training indices of each client, as stored with the run: a partition's file may have changed since.

        They contain the images that clients hold out.
        """
        file = self.path / PARTITION
        with damage_in_one_line(file, self.remedy):
            content = file.read_bytes()
        try:
            columns = read_columns(content, "the table")
            client, index = (integers(columns, name, "the table") for name in ("client", "index"))
        except UserError as error:
            raise DamagedFileError(file, error, self.remedy) from None
        split = np.split(index, np.flatnonzero(np.diff(client)) + 1)
        if partition_hash(split) != self.provenance.get("partition_hash"):
            raise DamagedFileError(file, f"its hash differs from partition_hash in {PROVENANCE}", self.remedy)
        return split

    def partition(self) -> pd.DataFrame:
        """The split as a table, with the columns of `partition_table`."""
        self.split()  # it is the run's
        columns = ["client", "index", "label"]
        return read_checked_csv(self.path / PARTITION, columns, self.remedy, whole=columns)

    def final(self, device: torch.device) -> FederationState:
        """The last global model; the vectors of server and clients are in snapshots only."""
        return self._state(self.path / FINAL, len(self.metrics()), device)

    def snapshot(self, finished_rounds: int, device: torch.device) -> FederationState:
        """The complete state after this many rounds; a `UserError` if it was not saved."""
        file = snapshot_file(self.path, finished_rounds)
        if not file.is_file():
            saved = ", ".join(map(str, self.config.snapshots)) or "none"
            raise UserError(f"'{self.path}' has no saved state after round {finished_rounds} (saved: {saved})")
        return self._state(file, finished_rounds, device)

    def _state(self, file: Path, finished_rounds: int, device: torch.device) -> FederationState:
        return load_state(file, device, self.remedy, partial(self.check_belongs, finished_rounds))[0]

    def check_belongs(self, finished_rounds: int, about: Mapping[str, Any]) -> None:
        """A ValueError if models with this description are not of this run, or not of the state after these rounds."""
        if "identity" in about and about["identity"] != self.identity:  # earlier versions did not record it
            raise ValueError(f"it {OF_ANOTHER_RUN}")
        if int(about["round"]) != finished_rounds:
            raise ValueError(f"it is of round {about['round']}")

    def local_models(self, finished_rounds: int, device: torch.device) -> Models:
        """The model w_i⁺ `[P]` of each participant of that round, by client id, and the resulting global model.

        A `UserError` if they were not saved.
        """
        file = local_models_file(self.path, finished_rounds)
        if not file.is_file():
            saved = ", ".join(map(str, self.config.rounds_of_local_models)) or "none; set evaluation.local_models"
            raise UserError(f"'{self.path}' has no saved local models of round {finished_rounds} (saved: {saved})")
        return Models(file, device, self.remedy, partial(self.check_belongs, finished_rounds))


def identified(
    table: pd.DataFrame, identity: str, seed: int, names: Mapping[str, str] = MappingProxyType({})
) -> pd.DataFrame:
    """A run's table with columns in front that identify the run; `names`: further ones, such as those of its cell."""
    ids = pd.DataFrame({**names, "identity": identity, "seed": seed}, index=table.index)
    return pd.concat([ids, table], axis=1)


def partition_table(split: Sequence[Indices], labels: Labels) -> pd.DataFrame:
    """The table of a split: client, index and label, one row for each image of each client.

    The partition `from_file` can read it; if clients share images (variant released), `repeats: true` is required.
    """
    client = np.repeat(np.arange(len(split)), [len(indices) for indices in split])
    index = np.concatenate(split)
    return pd.DataFrame({"client": client, "index": index, "label": labels[index]})


def snapshot_file(directory: Path, finished_rounds: int) -> Path:
    """The file of the state after this many rounds."""
    return directory / SNAPSHOTS / f"round-{finished_rounds:05d}.safetensors"


def local_models_file(directory: Path, finished_rounds: int) -> Path:
    """The file of the local models of a round."""
    return directory / LOCAL_MODELS / f"round-{finished_rounds:05d}.safetensors"


def run_directories(folder: Path, above: str = "**") -> list[Path]:
    """The run directories seed-N below a folder, also damaged ones, without unfinished runs.

    `above`: a pattern of the folders between, any number of them by default.
    """
    named = (place for place in folder.glob(f"{above}/seed-*") if place.name.removeprefix("seed-").isdigit())
    return sorted(place for place in named if any(Path(place / name).is_file() for name in (CONFIG, PROVENANCE)))


def is_complete(folder: Path) -> bool:
    """Whether a folder contains all files of a finished run: the configuration is written last.

    A `UserError` if this user may not read the folder.
    """
    try:
        return (folder / CONFIG).is_file()
    except OSError as error:
        raise UserError(f"cannot read '{folder}': {error.strerror}") from None
