"""Analyses of the loss on lines and planes of models."""
