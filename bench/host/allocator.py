"""The C library's memory allocator, set to keep freed memory in the process.

With glibc's defaults, the memory of activations is returned to the system after every training step and fetched again
page by page, which makes steps 6 to 60 % slower.
"""

import ctypes

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
NEVER_TRIM = -1
TOP_PAD_BYTES = 64 << 20
MMAP_BYTES = (1 << 30, 32 << 20)
"""Larger blocks are mapped separately and returned when freed. glibc before 2.35 allows at most 32 MiB."""

PINNED, DEFAULT = "pinned", "default"
_state = DEFAULT


def keep_freed_memory() -> bool:
    """Keep freed blocks for later allocations, from now on in this process and in its forks.

    False, without any effect, if the C library has no such setting.
    """
    global _state  # noqa: PLW0603 - a copy of the C library's setting, which cannot be read
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mapped = any(mallopt(M_MMAP_THRESHOLD, size) for size in MMAP_BYTES)
    if mapped and mallopt(M_TRIM_THRESHOLD, NEVER_TRIM) and mallopt(M_TOP_PAD, TOP_PAD_BYTES):
        _state = PINNED
    return _state == PINNED


def allocator() -> str:
    """The setting of the allocator, for a run's provenance: pinned or default."""
    return _state
