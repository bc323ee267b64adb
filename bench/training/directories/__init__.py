"""Directories of runs while they are trained, and when they are finished."""
