"""Experiments: YAML grids, what overrides what in them, and the run configurations that they expand to."""
