"""Corrections, one a module: the direction that a client makes of its gradient."""
