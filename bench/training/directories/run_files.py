"""The files of a finished run, each with a function that reads all of it and refuses it if it is damaged."""

import functools
import json
from collections.abc import Callable
from pathlib import Path

import torch

from fedflat.bench.experiments.results import METRICS, PARTITION
from fedflat.bench.experiments.stored_config import code_sections, copy_name
from fedflat.bench.files.checksums import DamagedFileError, damage_in_one_line
from fedflat.bench.files.csv_json import read_checked_json
from fedflat.bench.files.tensor_file import open_tensors
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import (
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
    of_models = []
    if models and has_models(run):
        folders = (path / SNAPSHOTS, path / LOCAL_MODELS)
        of_models = [path / FINAL, *(file for folder in folders for file in sorted(folder.glob("*.safetensors")))]
    return {
        path / PROVENANCE: lambda: run.provenance,
        path / CONFIG: lambda: read_checked_json(path / CONFIG, run.remedy),
        path / METRICS: run.metrics,
        path / TIMES: run.times,
        path / PARTITION: run.split,
        **{file: functools.partial(_read_models, run, file) for file in of_models},
        **{file: functools.partial(_read_code, run, file) for file in _copies_of_code(run)},
    }


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
        return [run.path / copy_name(section) for section in code_sections(read_checked_json(run.path / CONFIG, ""))]
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
    own = read_checked_json(run.path / CONFIG, run.remedy)[file.stem]
    with damage_in_one_line(file, run.remedy):
        if short_hash(file.read_bytes()) != own["code"]:
            raise ValueError(f"its hash differs from the one in {CONFIG}")
