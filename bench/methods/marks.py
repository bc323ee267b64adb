"""Marks of hyper-parameters, used in their annotations: `rho: Annotated[float, Neutral(0)] = Field(...)`."""

from dataclasses import dataclass

from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Neutral:
    """The value at which the hyper-parameter has no effect."""

    value: float | str


class Shared:
    """If several components of a method have the hyper-parameter, they share one value."""


class DropsOtherComponents:
    """If it is false, the method drops its other components. Only methods that list it in `takes` have it."""


def has_mark(field: FieldInfo, mark: type) -> bool:
    """Whether a hyper-parameter has this mark."""
    return any(isinstance(item, mark) for item in field.metadata)
