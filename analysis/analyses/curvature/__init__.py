"""Analyses of the Hessian."""
