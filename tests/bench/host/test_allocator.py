"""The allocator keeps freed memory once that is requested, which shows in page faults."""

import ctypes
import subprocess
import sys

import pytest

USE_AGAIN_AND_AGAIN = """
import ctypes, resource, sys
from bench.host.allocator import allocator, keep_freed_memory

assert allocator() == "default"
if sys.argv[1] == "pinned":
    assert keep_freed_memory()
assert allocator() == sys.argv[1]

c, size = ctypes.CDLL(None), 64 << 20
c.malloc.restype = ctypes.c_void_p

def use():
    block = ctypes.c_void_p(c.malloc(ctypes.c_size_t(size)))
    ctypes.memset(block, 1, size)
    c.free(block)

use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(state: str) -> int:
    command = [sys.executable, "-c", USE_AGAIN_AND_AGAIN, state]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt")
def test_freed_memory_stays_in_the_process():
    assert page_faults("pinned") < 20
    assert page_faults("default") > 200, "ten times 64 MiB, each page anew; even huge pages are 32 each"
