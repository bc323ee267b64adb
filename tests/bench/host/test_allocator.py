"""Once that is requested, the allocator keeps freed memory, which shows in page faults, and asks for huge pages."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import run

USE_AGAIN_AND_AGAIN = """
import ctypes, resource, sys
from fedflat.bench.host.allocator import allocator, keep_freed_memory

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


HUGE_PAGES = """
import resource, sys
from fedflat.bench.host.allocator import HUGE_BYTES, keep_freed_memory

if sys.argv[1] == "pinned":
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    keep_freed_memory()
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < HUGE_BYTES / 20, "the memory is not used yet"
import torch

tensors = [torch.ones(1 << 20) for _ in range(20)]
pages = {}
for line in open("/proc/self/smaps", encoding="utf-8"):
    first, *rest = line.split()
    if not first.endswith(":"):
        begin, end = (int(number, 16) for number in first.split("-"))
    elif first == "VmFlags:":
        pages[range(begin, end)] = "hg" in rest
middles = [tensor.data_ptr() + tensor.nbytes // 2 for tensor in tensors]
print(sum(any(huge and middle in place for place, huge in pages.items()) for middle in middles))
"""


def page_faults(state: str) -> int:
    command = [sys.executable, "-c", USE_AGAIN_AND_AGAIN, state]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt")
def test_freed_memory_stays_in_the_process():
    assert page_faults("pinned") < 20
    assert page_faults("default") > 200, "ten times 64 MiB, each page anew; even huge pages are 32 each"


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="this system has no huge pages")
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt")
def test_tensors_are_in_huge_pages_where_the_system_has_them(tmp_path):
    """The system notes for each part of the memory whether huge pages were requested, even if none is free.

    In forks of a process that has imported what commands use, as the forks of the command server.
    """
    (file := tmp_path / "pages.py").write_text(HUGE_PAGES, encoding="utf-8")

    def asked_for(state: str) -> int:
        done = run(["python", str(file), state])
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert asked_for("pinned") == 20
    assert asked_for("default") == 0
