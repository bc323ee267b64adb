"""Kills real runs at random times and compares their final bits with those of undisturbed runs.

python -m tests.faults --kills 200
"""
