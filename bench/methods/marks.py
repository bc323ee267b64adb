"""Marks of hyper-parameters, used in their annotations: `rho: Annotated[float, Neutral(0)] = Field(...)`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Neutral:
    """The value at which the hyper-parameter has no effect.

    The component then does what `base` does: a component of the catalog for the same slot; None: FedAvg's. `given` are
    values of other hyper-parameters that this needs. `fedflat check-method` compares both.
    """

    value: float | str
    base: str | None = None
    given: Mapping[str, Any] = field(default_factory=dict)


class Radius:
    """‖δ‖ is the value of this hyper-parameter of a perturbation, wherever δ is not zero."""


class Shared:
    """If several components of a method have the hyper-parameter, they share one value."""


class DropsOtherComponents:
    """If it is false, the method drops its other components. Only methods that list it in `takes` have it."""


def has_mark(info: FieldInfo, mark: type) -> bool:
    """Whether a hyper-parameter has this mark."""
    return any(isinstance(item, mark) for item in info.metadata)
