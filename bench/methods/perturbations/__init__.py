"""Perturbations: the point at which a client computes its gradient. Each module registers its perturbations."""
