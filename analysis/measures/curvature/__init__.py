"""The curvature of the loss: eigenvalues of its Hessian, and their density."""
