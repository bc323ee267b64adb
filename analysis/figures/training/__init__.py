"""Figures of training: curves, costs, sweeps."""
