"""Benchmarks of flatness: what a perturbation adds to its base, if both fit their training data."""
