"""The content of provenance.json: the code, libraries, machine and hashes of a run."""

import datetime
import platform
import resource
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import torch

from fedflat.bench import __version__
from fedflat.bench.data.partitions.base import partition_hash
from fedflat.bench.host.allocator import allocator
from fedflat.bench.host.machine import processor
from fedflat.bench.training.code_version import code_fingerprint, git_commit
from fedflat.bench.training.run_setup import RunSetup


def device_name(device: torch.device) -> str:
    """The name of a device as a run records it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})"


def computed_on(device: torch.device) -> dict[str, str]:
    """The device of a process that trains a run, and its processor."""
    return {"device": device_name(device), "processor": processor()}


def libraries() -> dict[str, str]:
    """The versions of the libraries that can change the last bits of a run."""
    return {name: version(name) for name in ("torch", "numpy", "pandas", "safetensors")}


def provenance(
    setup: RunSetup,
    data_hash: str,
    engine_at_start: Mapping[str, Any],
    engine: Mapping[str, Any],
    computed_on: Sequence[Mapping[str, Any]],
    outcome: str,
    seconds: float,
    tables: Mapping[str, str],
) -> dict[str, Any]:
    """The content of provenance.json for a run that has ended.

    `engine_at_start`, `engine`: how the engine computed the first and the last round, see Exactness in
    docs/results.md; `computed_on`: the machines of the run, each with the round after which it began there; `outcome`:
    finished, diverged, or stopped at `evaluation.until`; `seconds`: of training and evaluation; `tables`: the hashes of
    files that do not contain the identity of their run, by name.
    """
    device = setup.objective.device
    return {
        "outcome": outcome,
        "ended": datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds"),
        "identity": setup.config.identity,
        "seed": setup.config.seed,
        "code": {"version": __version__, "fingerprint": code_fingerprint(), **git_commit()},
        "libraries": libraries(),
        "python": platform.python_version(),
        "device": device_name(device),
        "processor": processor(),
        "computed_on": [dict(part) for part in computed_on],
        "engine_at_start": dict(engine_at_start),
        "engine": dict(engine),
        "threads": torch.get_num_threads(),
        "allocator": allocator(),
        "dtype": str(setup.objective.dtype).removeprefix("torch."),
        "precision": setup.objective.precision,
        "data_hash": data_hash,
        "model_hash": setup.model_hash,
        "missing_images": setup.config.dataset.missing_images(setup.dataset),
        "partition_hash": partition_hash(setup.drawn),
        "tables": dict(tables),
        "parameters": setup.objective.layout.total,
        "seconds": round(seconds, 3),
        "process_peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "peak_gpu_memory_mib": torch.cuda.max_memory_allocated(device) // 2**20 if device.type == "cuda" else None,
    }
