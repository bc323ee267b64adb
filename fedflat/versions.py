"""What a report of a problem needs: versions, machine and environment."""

import os
import platform
import sys
from pathlib import Path

import torch

from fedflat.analysis.provenance.crate import libraries
from fedflat.bench.data.root import data_root
from fedflat.bench.host.machine import machine
from fedflat.bench.host.memory import available_memory
from fedflat.bench.training.code_version import code_fingerprint, code_in_words

VARIABLES = ("FEDFLAT_", "XDG_", "CUDA", "CUBLAS", "SLURM_JOB", "SLURM_MEM", "LD_PRELOAD", "PYTHONPATH")
"""The begin of the names of environment variables that change what FedFlat or its libraries do."""


def versions() -> list[str]:
    """One line for each fact."""
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    facts = {
        "installed in": str(Path(__file__).parent),
        "training code": code_fingerprint(),
        "Python": f"{platform.python_version()}, {sys.executable}",
        "system": platform.platform(),
        "machine": f"{machine(torch.device('cpu'))}, {available_memory() / 2**30:.1f} GiB of memory free",
        "GPUs": f"{', '.join(gpus) or 'none'}, CUDA of torch: {torch.version.cuda or 'none'}",
        "data sets": str(data_root()),
        **{name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)},
        **libraries(),
    }
    return [code_in_words(), *(f"{name}: {fact}" for name, fact in facts.items())]
