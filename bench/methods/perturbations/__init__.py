"""Perturbations, one a module: at which point a client takes its gradient."""
