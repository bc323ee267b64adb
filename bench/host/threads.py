"""CPU threads of a process: stated for each, never left to a library's default."""

import os

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The environment in which libraries are loaded. `torch.set_num_threads` raises torch's count afterwards; NumPy's stays
at one: it does no heavy work here, and its rounding does not depend on the count then."""


def available_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
