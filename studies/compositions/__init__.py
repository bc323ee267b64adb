"""Compositions: all legal triples of perturbation × correction × server, and which of them papers have published."""
