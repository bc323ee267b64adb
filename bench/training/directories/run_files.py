"""The files of a finished run, each with a function that reads all of it and refuses it if it is damaged."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fedflat.bench.experiments.results import METRICS, PARTITION
from fedflat.bench.experiments.stored_config import code_sections, copy_name
from fedflat.bench.files.checksums import DamagedFileError, damage_in_one_line
from fedflat.bench.files.csv_json import read_checked_json
from fedflat.bench.files.tensor_file import check_header, open_tensors
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import (
    BY_CLIENT,
    CONFIG,
    FINAL,
    LOCAL_MODELS,
    PROVENANCE,
    SNAPSHOTS,
    TIMES,
    RunDirectory,
    local_models_file,
    snapshot_file,
)

CPU = torch.device("cpu")

WITH_CHECKSUMS = (".csv", ".json", ".safetensors")
"""The suffixes of files that have a checksum, except in runs of earlier versions."""


def has_models(run: RunDirectory) -> bool:
    """Whether a run has stored models; one that was exported without them has none."""
    return (run.path / FINAL).is_file() or (run.path / SNAPSHOTS).is_dir() or (run.path / LOCAL_MODELS).is_dir()


def readers(run: RunDirectory, *, models: bool = True) -> dict[Path, Callable[[], object]]:
    """The files of a run, except its log, each with a function that reads all of it.

    The function raises a `DamagedFileError` if the file is missing, damaged, or of another run. Without `models`, final
    model, states and local models are left out.
    """
    path = run.path
    return {
        path / PROVENANCE: lambda: run.provenance,
        path / CONFIG: lambda: read_checked_json(path / CONFIG, run.remedy),
        path / METRICS: run.metrics,
        path / TIMES: run.times,
        path / PARTITION: run.split,
        **({path / BY_CLIENT: run.client_accuracies} if _has_client_accuracies(run) else {}),
        **{file: functools.partial(_read_models, run, file) for file in (model_files(run) if models else ())},
        **{file: functools.partial(_read_code, run, file) for file in _copies_of_code(run)},
    }


def _has_client_accuracies(run: RunDirectory) -> bool:
    """Not of a run whose provenance is damaged, which its own reader finds."""
    try:
        return run.has_client_accuracies
    except DamagedFileError:
        return False


def check_run(run: RunDirectory) -> dict[str, Any]:
    """The stored configuration of a run; a `DamagedFileError` if the run is not whole. No code of it is executed.

    Configuration and provenance are compared with their checksums, tables and copies of code with the recorded
    hashes. Of models and states, which may be large, only headers and sizes are checked, and of the partition, that it
    exists: `readers` reads all of them.
    """
    config = read_checked_json(run.path / CONFIG, run.remedy)
    for name in {METRICS: None, TIMES: None, **run.provenance.get("tables", {})}:
        run.check_recorded(name)
    if not (run.path / PARTITION).is_file():
        raise DamagedFileError(run.path / PARTITION, "it does not exist", run.remedy)
    for file in model_files(run):
        check_header(file, run.remedy)
    for file in _copies_of_code(run):
        _read_code(run, file)
    return config


def model_files(run: RunDirectory) -> list[Path]:
    """The final model, which need not exist, states and local models; none if the run was exported without models."""
    if not has_models(run):
        return []
    folders = (run.path / SNAPSHOTS, run.path / LOCAL_MODELS)
    return [run.path / FINAL, *(file for folder in folders for file in sorted(folder.glob("*.safetensors")))]


def has_only_final(run: RunDirectory) -> bool:
    """Whether a run has its final model, but none of the states and local models that its configuration requires.

    Runs in results/reproductions/ are stored so.
    """
    required = bool(run.config.snapshots or run.config.rounds_of_local_models)
    stored = any((run.path / folder).is_dir() for folder in (SNAPSHOTS, LOCAL_MODELS))
    return required and not stored and (run.path / FINAL).is_file()


def check_models(run: RunDirectory) -> None:
    """A `DamagedFileError` if a model or state is missing that the configuration requires."""
    done, config = len(run.metrics()), run.config
    states = [snapshot_file(run.path, number) for number in config.snapshots if number <= done]
    models = [local_models_file(run.path, number) for number in config.rounds_of_local_models if number <= done]
    for file in (run.path / FINAL, *states, *models):
        if not file.is_file():
            raise DamagedFileError(file, "it does not exist", run.remedy)


def _copies_of_code(run: RunDirectory) -> list[Path]:
    """The copies of user-defined code that the run must have."""
    try:
        return [run.path / copy_name(name) for name in code_sections(read_checked_json(run.path / CONFIG, ""))]
    except UserError:  # reported when the configuration is read
        return []


def _read_models(run: RunDirectory, file: Path) -> None:
    """Read all tensors of a file; a `DamagedFileError` if it is not of this run, or not of the round in its name."""
    with open_tensors(file, run.remedy) as tensors:
        _, _, number = file.stem.partition("-")
        run.check_belongs(int(number) if number else len(run.metrics()), json.loads(tensors.metadata["about"]))
        for name in tensors.names:
            tensors.read(name, CPU)


def _read_code(run: RunDirectory, file: Path) -> None:
    """A `DamagedFileError` if a copy of user-defined code has another hash than the configuration states."""
    own = code_sections(read_checked_json(run.path / CONFIG, run.remedy))[file.stem]
    with damage_in_one_line(file, run.remedy):
        if short_hash(file.read_bytes()) != own["code"]:
            raise ValueError(f"its hash differs from the one in {CONFIG}")
