"""The costs of a round, counted from the tensors that are sent and stored.

Sizes are in units of the model, whose numbers have 32 bits. Single numbers, such as FedGF's c, are not counted. Methods
declare nothing, unless they send vectors in another form, such as top-k or quantised ones.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor

from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.method import Method

BITS = 32
"""Bits of a number that is sent: models are sent in float32."""

MOST_BITS = 2**63
"""Of a vector: more than any network has ever sent."""

MODEL = "model"
"""The name of the model among the vectors that are sent."""

Bits = Callable[[str, Tensor], float | Tensor | None]
"""The declared bits of a vector with this name; None: 32 per number."""


def model_sizes(tensors: Iterable[Tensor], parameters: int) -> float:
    """The total size of the tensors in units of a model with this many parameters; single numbers are not counted."""
    return sum(tensor.numel() for tensor in tensors if tensor.numel() > 1) / parameters


def declared(method: Method, direction: Literal["upload", "download"]) -> Bits:
    """The bits that the method's components declare: those of the first one that declares any for a vector.

    A number on the device is checked by `check_sizes`, when all measurements of the round are fetched.
    """
    hooks = [getattr(component, f"{direction}_bits") for component in method]

    def bits(name: str, v: Tensor) -> float | Tensor | None:
        found: Any = next((given for hook in hooks if (given := hook(name, v)) is not None), None)
        if isinstance(found, Tensor) and found.numel() == 1 and not found.dtype.is_complex:
            # One that is wrong must not vanish in a sum.
            return torch.where(found >= 0, found.double(), torch.nan)
        if found is None:
            return None
        is_number = isinstance(found, Real) and not isinstance(found, bool)
        if is_number and 0 <= found <= MOST_BITS:
            return float(found)
        raise _wrong(method.name, direction, f" of '{name}' = {found!r}")

    return bits


def check_sizes(method: str, measured: Mapping[str, float]) -> None:
    """A `UserError` if a size that the method declared as a tensor is negative, not finite or not a number.

    Not if the round diverged: a size may depend on the content, which is then not finite either.
    """
    for direction in ("upload", "download"):
        if not math.isfinite(measured[direction]) and not measured["diverged"]:
            raise _wrong(method, direction, " is negative, infinite or not a number")


def _wrong(method: str, direction: str, what: str) -> UserError:
    return UserError(f"{method}: {direction}_bits{what} (allowed: a number of at least 0, or None)")


def sent_size(
    models: Sequence[Tensor], others: Sequence[Mapping[str, Tensor]], parameters: int, bits: Bits
) -> float | Tensor:
    """The mean size of what several clients send, or what is sent to one: a model and other vectors each."""
    of_models = [bits(MODEL, model) for model in models]
    named = [(name, v) for sent in others for name, v in sent.items() if v.numel() > 1]
    of_others, vectors = [bits(name, v) for name, v in named], [v for _, v in named]
    dense = model_sizes((v for v, own in zip(vectors, of_others, strict=True) if own is None), parameters)
    size: float | Tensor = sum(own is None for own in of_models) / len(models) + dense / len(models)
    own = [n for n in [*of_models, *of_others] if n is not None]
    return size + sum(own) / (BITS * parameters * len(models)) if own else size
