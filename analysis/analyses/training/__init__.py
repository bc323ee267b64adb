"""Analyses of a run's recorded metrics."""
