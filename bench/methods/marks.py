"""Marks of hyper-parameters, used in their annotations: `rho: Annotated[float, Neutral(0)] = Field(...)`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Neutral:
    """The value at which the hyper-parameter has no effect."""

    value: float | str


class Shared:
    """If several components of a method have the hyper-parameter, they share one value."""
