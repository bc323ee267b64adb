"""Runs a module, and prints its seconds of processor time and its peak memory in MiB."""

import json
import runpy
import sys
import time

from tests.benchmarks.machine import peak_memory_mib

if __name__ == "__main__":
    del sys.argv[0]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    finally:
        print(json.dumps([time.process_time(), peak_memory_mib()]), file=sys.stderr)
