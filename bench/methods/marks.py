"""Marks of hyper-parameters, which stand in their annotations: `rho: Annotated[float, Neutral(0)] = Field(...)`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Neutral:
    """The value at which the hyper-parameter has no effect."""

    value: float | str


class Shared:
    """The hyper-parameter has one value per method, even if several of its components have it."""
