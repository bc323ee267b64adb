"""Power iteration with deflation, the estimator of published Hessian eigenvalues."""

import numpy as np
import torch
from torch import Tensor

from fedflat.analysis.measures.curvature.lanczos import Eigenpairs, Operator, Track, measured

CHANGE = 1e-4
"""The iteration stops when a step changes the eigenvalue by less than this, relatively."""


def deflated_power_iteration(
    product: Operator, start: Tensor, k: int, *, steps: int = 20, track: Track = iter
) -> Eigenpairs:
    """k eigenvalues of A, one after the other, in at most `steps` products each.

    v ← Av/‖Av‖ until the estimate vᵀAv changes by less than 1e-4, relatively; then A ← A − λvvᵀ, and the next iteration
    starts from the last v. This is the power iteration of Caldarola et al. 2022, appendix C.4 (at most 20 iterations),
    in the form and with the defaults of the package hessian-eigenthings. It finds the eigenvalues of largest |λ|,
    including negative ones. It does not check its accuracy, and the error of each eigenvalue changes the deflated A of
    the next ones; so k more products measure the residuals ‖Av − λv‖. `start` is `[P]`. Memory: k vectors.
    """
    vectors, values = start.new_zeros(k, len(start)), np.zeros(k)
    v, products = start / torch.linalg.vector_norm(start), 0
    for i in track(range(k)):
        value = previous = 0.0
        for _ in range(steps):
            found = torch.from_numpy(values[:i]).to(v)
            Av = product(v) - (found * (vectors[:i] @ v)) @ vectors[:i]
            products += 1
            value = float(v @ Av)
            length = torch.linalg.vector_norm(Av)
            if length == 0:
                break
            v = Av / length
            if abs(value - previous) < CHANGE * abs(value):
                break
            previous = value
        vectors[i], values[i] = v, value
    return measured(product, vectors, values, products)
