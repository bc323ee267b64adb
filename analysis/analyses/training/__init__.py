"""Analyses of a run's own metrics."""
