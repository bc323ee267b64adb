"""Where the gradient is taken: one perturbation a module."""
