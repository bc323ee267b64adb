"""Directories of runs: while they are trained, when they are finished, and when other experiments have them."""
