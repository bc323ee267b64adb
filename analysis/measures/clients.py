"""A model's accuracy and feature norms for each client and each class.

A client or class without images has NaN.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedflat.bench.engine.objective import Objective
from fedflat.bench.input.errors import UserError

Floats = NDArray[np.float64]
Features = Literal["penultimate", "output"]


@dataclass(frozen=True)
class Responses:
    """A model's responses to n images: whether each is classified `correct`ly `[n]`, and the L2 `norms` `[n]` of its
    features."""

    correct: NDArray[np.bool_]
    norms: Floats


def responses(
    objective: Objective, w: Tensor, data: Iterable[tuple[Tensor, Tensor]], features: Features = "penultimate"
) -> Responses:
    """The responses of the model w `[P]`, in one forward pass over the data; norms agree to 1e-5 for any batch size.

    `features`: the class scores (output), or the input of the linear layer that is called last (penultimate).
    Caldarola et al. (Figure 7) print the norm of the "output features f_θ(x)" and do not state which of the two these
    are.
    """
    correct, norms = [], []
    with _last_linear_input(objective.module) as seen:
        for x, y in data:
            scores = objective.logits(w, x, batch_size=len(x))
            if features == "penultimate" and not seen:
                raise UserError("the model has no linear layer, so no penultimate features (allowed: output)")
            response = scores if features == "output" else seen[0]
            norms.append(response.flatten(1).double().norm(dim=1))
            correct.append(scores.argmax(1) == y)
    return Responses(torch.cat(correct).cpu().numpy(), torch.cat(norms).cpu().numpy())


@contextmanager
def _last_linear_input(module: nn.Module) -> Iterator[list[Tensor]]:
    """A list that holds, after each forward pass, the input of the linear layer that was called last."""
    seen: list[Tensor] = []

    def see(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen[:] = inputs[:1]

    hooks = [part.register_forward_pre_hook(see) for part in module.modules() if isinstance(part, nn.Linear)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def mean_of_classes(values: NDArray[Any], labels: NDArray[np.int64], classes: int) -> Floats:
    """The mean `[C]` of values `[n]` over the images of each class."""
    counts = np.bincount(labels, minlength=classes)
    means: Floats = np.full(classes, np.nan)
    sums = np.bincount(labels, weights=values, minlength=classes)
    return np.divide(sums, counts, out=means, where=counts > 0)


def untested_classes(of_classes: Floats, shares: Floats) -> str:
    """Which classes `expected_of_clients` leaves out, because no test image has them; empty if it leaves out none.

    For example: 'without class 3, which no test image has: 24.5 % of a client's images on average, at most 71.0 %'.
    """
    untested = np.flatnonzero(np.isnan(of_classes) & (shares > 0).any(axis=0))
    if not len(untested):
        return ""
    left_out = 100 * shares[:, untested].sum(axis=1)
    classes = f"{'class' if len(untested) == 1 else 'classes'} {', '.join(map(str, untested))}"
    share = f"{left_out.mean():.1f} % of a client's images on average, at most {left_out.max():.1f} %"
    return f"without {classes}, which no test image has: {share}"


def over_how_many(values: Floats, noun: str) -> str:
    """Over how many of the values a mean is, which leaves out NaN: '10 clients', or '9 of 10 clients'."""
    known = int((~np.isnan(values)).sum())
    return f"{len(values)} {noun}" if known == len(values) else f"{known} of {len(values)} {noun}"


def summary(accuracies: Floats) -> dict[str, float]:
    """Mean, population standard deviation, lowest and highest of the clients' accuracies; all clients count equally.

    Clients without a value, NaN, are left out; all are NaN if no client has one.

    Qu et al. (2022) print mean and deviation over clients and do not state whether the deviation divides by n or n - 1.
    """
    known = accuracies[~np.isnan(accuracies)]
    if not len(known):
        return dict.fromkeys(("mean", "deviation", "worst", "best"), float("nan"))
    return {
        "mean": float(known.mean()),
        "deviation": float(known.std()),
        "worst": float(known.min()),
        "best": float(known.max()),
    }
