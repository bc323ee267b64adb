"""Paths that tests of all packages use."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
GOLDEN = TESTS / "golden"
MINI = str(TESTS / "end_to_end" / "mini" / "experiments.yaml")
"""A small experiment on digits with every analysis."""
