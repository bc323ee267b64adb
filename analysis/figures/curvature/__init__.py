"""Figures of the Hessian's eigenvalues."""
