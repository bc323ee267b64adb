"""The content of provenance.json: the code, libraries, machine and hashes of a run."""

import platform
import resource
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import torch

from bench import __version__
from bench.data.partitions.base import partition_hash
from bench.host.allocator import allocator
from bench.training.code_version import code_fingerprint, git_commit
from bench.training.run_setup import RunSetup


def provenance(
    setup: RunSetup, data_hash: str, engine: Mapping[str, Any], outcome: str, seconds: float
) -> dict[str, Any]:
    """The content of provenance.json for a run that has ended.

    `engine`: how the engine computed it; `outcome`: finished, diverged, or stopped at `evaluation.until`; `seconds`: of
    training and evaluation.
    """
    device = setup.objective.device
    cuda = device.type == "cuda"
    return {
        "outcome": outcome,
        "identity": setup.config.identity,
        "seed": setup.config.seed,
        "code": {"version": __version__, "fingerprint": code_fingerprint(), **git_commit()},
        "libraries": {name: version(name) for name in ("torch", "numpy", "pandas", "safetensors")},
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if cuda else f"cpu ({platform.machine()})",
        "engine": dict(engine),
        "threads": torch.get_num_threads(),
        "allocator": allocator(),
        "dtype": str(setup.objective.dtype).removeprefix("torch."),
        "precision": setup.objective.precision,
        "data_hash": data_hash,
        "partition_hash": partition_hash(setup.split),
        "parameters": setup.objective.layout.total,
        "seconds": round(seconds, 3),
        "process_peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "peak_gpu_memory_mib": torch.cuda.max_memory_allocated(device) // 2**20 if cuda else None,
    }
