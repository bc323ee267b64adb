"""The C library's memory allocator, set so that freed memory stays with the process."""

import ctypes

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
KEPT_BYTES = 1 << 30
PADDING_BYTES = 64 << 20


def keep_freed_memory() -> bool:
    """Have glibc keep what is freed, up to 1 GiB, for the next allocation; to be called when the process starts.

    With its defaults the activations of every step go back to the system, and come back page by page. False where the
    C library has no such setting.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((M_MMAP_THRESHOLD, KEPT_BYTES), (M_TRIM_THRESHOLD, KEPT_BYTES), (M_TOP_PAD, PADDING_BYTES))
    return all(mallopt(name, value) == 1 for name, value in settings)
