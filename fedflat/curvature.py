"""Part of the Python API: the curvature of a user-defined model on the user's tensors."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from analysis.measures.curvature.hessian import TopEigenvalues, top_eigenvalues
from bench.engine.objective import Objective
from bench.engine.own_tensors import check_data, check_model


def hessian(
    model: nn.Module, data: tuple[Tensor, Tensor], k: int = 1, *, tolerance: float = 1e-3, batch_size: int = 1000
) -> TopEigenvalues:
    """The k algebraically largest eigenvalues of the Hessian of the mean cross-entropy, by Lanczos iteration.

    `data`: inputs `[n, ...]` and labels `[n]`. Iterates until each residual ‖Hv − λv‖ is at most `tolerance`·|λ|.
    Computes in the model's number format, on its device, in batches of `batch_size`; the model is not changed.

    >>> import fedflat, torch
    >>> model = torch.nn.Linear(2, 2)
    >>> for parameter in model.parameters():
    ...     _ = torch.nn.init.zeros_(parameter)
    >>> x, y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1])
    >>> top = fedflat.hessian(model, (x, y), k=2)
    >>> [round(value, 4) for value in top.eigenvalues], top.converged
    ([0.75, 0.25], True)

    Raises `UserError` if k is not smaller than the number of parameters, if `data` are empty or do not fit the
    model, or if the model has buffers or torch's dropout.
    """
    check_model(model)
    objective = Objective(deepcopy(model))
    check_data(objective, "data", data)
    x, y = data
    w = objective.initial()
    batches = list(zip(x.to(w).split(batch_size), y.to(w.device, torch.int64).split(batch_size), strict=True))
    return top_eigenvalues(objective, w, batches, k, tolerance=tolerance)
