"""The parts of the machine on which speed depends."""

import platform
from pathlib import Path

import torch

from fedflat.bench.host.threads import available_cores


def processor() -> str:
    """The processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine(device: torch.device) -> str:
    """The GPU, or the processor and the number of its cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor()}, {available_cores()} cores"
