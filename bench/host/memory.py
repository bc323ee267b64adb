"""Memory for the states of clients; states beyond it are stored in a file."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

SLURM = "SLURM_MEM_PER_NODE"
"""The environment variable with the MiB of memory that a Slurm job may use on this machine; 0 or missing: no limit."""


@dataclass(frozen=True)
class Budgets:
    """Bytes of GPU memory (`device`) and of host memory that client states may take. On a CPU only `host` counts."""

    device: float = math.inf
    host: float = math.inf

    @classmethod
    def share(cls, device: torch.device, share: float = 0.25) -> "Budgets":
        """This share of the memory that is free now; training itself and other runs need the rest."""
        return cls(device=share * free_memory(device), host=share * available_memory())


def free_memory(device: torch.device) -> float:
    """Bytes of a GPU's memory that are free now; infinite for other devices, which map files into memory."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf


def graph_bytes(compute: Callable[[], object]) -> int:
    """Bytes of the tensors that autograd stores for backward passes while `compute` runs."""
    sizes: dict[int, int] = {}

    def note(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return saved.detach()

    with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        compute()
    return sum(sizes.values())


def available_memory() -> int:
    """Bytes of free memory; never more than the limit of the process's control group (a container, a job), and of its
    Slurm job, which some clusters check without a control group."""
    slurm = 2**20 * int(os.environ.get(SLURM) or 0)
    return min([_machine(), *_control_groups(), *([slurm] if slurm else [])])


def _machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux: all installed memory
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _control_groups() -> list[int]:
    """The limits of the process's control group (version 2) and of its parents; empty if there are none."""
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8").rpartition("0::/")[2].strip()
    except OSError:
        return []
    root = Path("/sys/fs/cgroup")
    files = [group / "memory.max" for group in (root / own, *(root / own).parents) if group.is_relative_to(root)]
    limits = [file.read_text(encoding="utf-8").strip() for file in files if file.is_file()]
    return [int(limit) for limit in limits if limit != "max"]
