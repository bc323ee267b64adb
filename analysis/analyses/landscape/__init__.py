"""Analyses of the loss on lines and planes in parameter space."""
