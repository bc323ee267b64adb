"""What this machine is, and what it can do at best: its processor, its matrix rate and its copy rate."""

import os
import platform
from pathlib import Path

NOTED = ("avx2", "avx512f", "avx512_bf16", "avx_vnni", "avx512_vnni", "amx_bf16", "asimd", "sve", "bf16")
"""Instruction sets that matter for training, as Linux names them."""


def _cpuinfo() -> dict[str, str]:
    """The first processor's entry of /proc/cpuinfo; empty where there is none."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").split("\n\n")[0].splitlines() if file.exists() else []
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def instruction_sets() -> list[str]:
    """The instruction sets of `NOTED` that the CPU supports."""
    info = _cpuinfo()
    flags = (info.get("flags") or info.get("Features") or "").split()
    return [name for name in NOTED if name in flags]


def has_bf16() -> bool:
    """Whether the CPU multiplies bf16 matrices itself."""
    return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(instruction_sets()))


def peak_memory_mib() -> float:
    """The largest resident memory of this process so far.

    Not getrusage's, where a process that has been started by a larger one begins with the size of that.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines() if ":" in line)
        return int(lines["VmHWM"].split()[0]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if platform.system() == "Darwin" else 2**10)


def resident_memory_mib() -> float:
    """The resident memory of this process now. Linux only."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
