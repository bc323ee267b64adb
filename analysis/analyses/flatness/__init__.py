"""Analyses of how the loss rises around a model."""
