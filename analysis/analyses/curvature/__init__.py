"""Analyses of the Hessian of the loss."""
