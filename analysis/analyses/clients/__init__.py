"""Analyses of accuracy by client, by class, and by corruption."""
