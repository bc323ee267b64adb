"""Analyses of flatness: how the loss rises around a model."""
