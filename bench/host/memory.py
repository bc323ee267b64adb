"""How much memory the states of clients may take before they move on to a file."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Budgets:
    """Bytes of the GPU's memory and of the host's that client states may take. On a CPU the second alone counts."""

    device: float = math.inf
    host: float = math.inf

    @classmethod
    def share(cls, device: torch.device, share: float = 0.25) -> "Budgets":
        """So much of the memory that is free now: what training itself takes, and other runs, needs the rest."""
        on_device = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
        return cls(device=share * on_device, host=share * available_memory())


def available_memory() -> int:
    """Bytes of memory that the machine has left, or that the process's control group (a container, a job) allows."""
    return min([_machine(), *_control_groups()])


def _machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux: what is installed
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _control_groups() -> list[int]:
    """The limits of the process's control group and of those around it (version 2); none where there are none."""
    try:
        own = Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    except OSError:
        return []
    root = Path("/sys/fs/cgroup")
    files = [group / "memory.max" for group in (root / own, *(root / own).parents) if group.is_relative_to(root)]
    limits = [file.read_text().strip() for file in files if file.is_file()]
    return [int(limit) for limit in limits if limit != "max"]
