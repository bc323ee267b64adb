"""Corrections: the direction of the local step, given the gradient. Each module registers its corrections."""
