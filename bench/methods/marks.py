"""Marks of hyper-parameters, used in their annotations: `rho: Annotated[float, Neutral(0)] = Field(...)`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic.fields import FieldInfo

from fedflat.bench.input.errors import UserError


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


@dataclass(frozen=True)
class Search:
    """The values among which `fedflat tune` searches: those from `low` to `high`, or the listed `values`.

    With `log`, values are drawn evenly in the logarithm. A `UserError` for a range that is empty or contradictory.
    """

    low: float | None = None
    high: float | None = None
    log: bool = False
    values: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if self.values is not None:
            if self.low is not None or self.high is not None or self.log:
                raise UserError(f"a search range has either values, or low and high, not both: {self}")
            if not self.values:
                raise UserError("a search range has no values (allowed: a list such as [5, 10, 20])")
            if len(set(self.values)) < len(self.values):
                raise UserError(f"a search range has a value twice: {self}")
            return
        if self.low is None or self.high is None:
            raise UserError("a search range needs low and high, or values, such as {low: 0.01, high: 0.5, log: true}")
        if not self.low < self.high:
            raise UserError(f"the search range {self} is empty (allowed: low below high)")
        if self.log and self.low <= 0:
            raise UserError(f"the search range {self} begins at {self.low:g} (allowed: above 0, or without log)")

    @property
    def ends(self) -> tuple[Any, ...]:
        """The smallest and the largest value, or all listed values."""
        return (self.low, self.high) if self.values is None else self.values

    def at(self, share: float, *, whole: bool = False) -> Any:
        """The value at this share of the range, from 0 to 1, rounded to three digits, or to a whole number."""
        if self.values is not None:
            return self.values[min(int(share * len(self.values)), len(self.values) - 1)]
        assert self.low is not None
        assert self.high is not None
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        value = min(max(float(f"{value:.3g}"), self.low), self.high)
        return round(value) if whole else value

    def __str__(self) -> str:
        if self.values is not None:
            return " or ".join(map(str, self.values))
        ends = " to ".join("?" if end is None else f"{end:g}" for end in (self.low, self.high))
        return f"{ends}, in the logarithm" if self.log else ends


class Shared:
    """If several components of a method have the hyper-parameter, they share one value."""


class Scheduled:
    """The hyper-parameter can follow a schedule over rounds.

    In a round, `self.rho` is then its value in this round: a number, or a tensor of one number when clients are trained
    in a batch. A component must neither branch on it nor use it in `start_client`, `start_server`.
    """


class DropsOtherComponents:
    """If it is false, the method drops its other components. Only methods that list it in `takes` have it."""


def search_of(info: FieldInfo) -> Search | None:
    """The search range of a hyper-parameter; None if it keeps its value."""
    return next((item for item in info.metadata if isinstance(item, Search)), None)


def has_mark(info: FieldInfo, mark: type) -> bool:
    """Whether a hyper-parameter has this mark."""
    return any(isinstance(item, mark) for item in info.metadata)
