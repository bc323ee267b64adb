"""CPU threads of a process: always set explicitly, never left to a library's default."""

import os

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The environment in which libraries are loaded. `torch.set_num_threads` raises torch's number of threads afterwards.
NumPy uses one thread: it does no heavy work here, and its rounding then does not depend on the number of threads."""


def available_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
