"""`make bench`: the engine against a plain reference and against the arithmetic alone, and how it scales.

    python -m tests.benchmarks [--device auto|cpu|cuda] [--only SECTION] [--quick] [--out FILE]

Whatever is compared is timed in one run, in turn (A B C A B C ...), each contender in a process with its own allocator
and number of threads. studies/pages/performance.md explains how to read the tables.
"""
