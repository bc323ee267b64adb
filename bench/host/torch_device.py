"""The torch device on which a command computes, set up for reproducible results."""

import os

import torch

from fedflat.bench.host.device import device_name
from fedflat.bench.host.gpu_claim import claim, claims_folder
from fedflat.bench.host.progress import Progress, silent
from fedflat.bench.host.threads import available_cores
from fedflat.bench.input.errors import UserError


def resolved_name(name: str) -> str:
    """The name of a device; for `auto`, `cuda` if torch sees a GPU, else `cpu`. A `UserError` if it is not valid."""
    if device_name(name) != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def prepare_device(name: str, threads: int, progress: Progress = silent) -> torch.device:
    """The torch device `auto`, `cpu` or `cuda[:i]`, set up for reproducible results.

    `threads`: CPU threads of torch; never more than there are cores. `cuda`, and `auto` on a machine with a GPU, claim
    a GPU that no other process of this user has claimed, and wait until one is free. `cuda:i` takes that GPU without a
    claim.
    """
    torch.set_num_threads(min(threads, available_cores()))
    name = resolved_name(name)
    device = torch.device(name)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UserError("device cuda requested, but torch sees no GPU (allowed here: auto, cpu)")
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        # Filling new tensors would only cost time: no code here reads memory that it has not written.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        gpus = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]
        if ":" not in name:
            device = torch.device("cuda", claim(gpus, claims_folder(), progress))
        elif device.index >= len(gpus):
            raise UserError(f"device {device} requested, but torch sees no GPU beyond cuda:{len(gpus) - 1}")
        torch.cuda.set_device(device)
    return device
