"""The C library's memory allocator, set so that freed memory stays with the process.

With glibc's defaults the activations of every training step go back to the system and come back page by page, which
makes steps 6 to 60 % slower.
"""

import ctypes

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
NEVER_TRIM = -1
TOP_PAD_BYTES = 64 << 20
MMAP_BYTES = (1 << 30, 32 << 20)
"""Larger blocks are mapped on their own and go back when freed; before glibc 2.35, 32 MiB is the most it takes."""

PINNED, DEFAULT = "pinned", "default"
_state = DEFAULT


def keep_freed_memory() -> bool:
    """Have freed blocks kept for the next allocation, from now on in this process and those that it forks.

    False, and nothing done, where the C library has no such setting.
    """
    global _state  # noqa: PLW0603 - it mirrors the C library's own, which cannot be asked
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mapped = any(mallopt(M_MMAP_THRESHOLD, size) for size in MMAP_BYTES)
    if mapped and mallopt(M_TRIM_THRESHOLD, NEVER_TRIM) and mallopt(M_TOP_PAD, TOP_PAD_BYTES):
        _state = PINNED
    return _state == PINNED


def allocator() -> str:
    """How the allocator is set, for a run's provenance: pinned or default."""
    return _state
