"""What a claim can state about cells, and the contrasts of their values that decide it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from fedflat.analysis.claims.decide import AtLeast, Contrast, Region, Statement, every
from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen

Unit = tuple[Setting, ...]
"""Settings that a statement needs at once: one, or those along which a value changes."""


def _listed(given: Any) -> Any:
    """A single label as a list."""
    return [given] if isinstance(given, str) else given


Labels = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]
"""Labels of methods; a single one may stand alone, and the name of a group stands for several."""

Along = Literal["dataset", "partition", "participation"]


class Bounds(Frozen):
    """An interval of values, with its bounds; or a number as the paper prints it."""

    at_least: float | None = Field(default=None, examples=[4.2], description="the smallest value; null: no bound")
    at_most: float | None = Field(default=None, examples=[5.3], description="the largest value; null: no bound")
    equals: str | None = Field(
        default=None,
        pattern=r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$",
        description="as printed, such as '4.20': half a unit of its last digit is added on both sides",
    )

    @model_validator(mode="after")
    def _either(self) -> "Bounds":
        if (self.equals is None) == (self.at_least is None and self.at_most is None):
            raise UserError("bounds are either equals, or at_least and at_most, or one of these two")
        return self

    @property
    def region(self) -> Region:
        """The interval."""
        if self.equals is not None:
            number, half = float(self.equals), 0.5 * 10.0 ** -len(self.equals.partition(".")[2])
            return Region(number - half, number + half)
        return Region(
            -math.inf if self.at_least is None else self.at_least, math.inf if self.at_most is None else self.at_most
        )


ABOVE = Region(0, strict=True)
"""Above 0."""


Terms = tuple[tuple[CellAddress, float], ...]


class StatementForm(Frozen, ABC):
    """The form of a statement. `sign`: -1 for lower, lowest and falls; else 1."""

    @property
    @abstractmethod
    def subjects(self) -> tuple[str, ...]:
        """The methods of which it says the same."""

    @abstractmethod
    def about(self, subject: str, units: Sequence[Unit], sign: int) -> Statement:
        """The statement about one of its methods, on average over the units."""


class MethodComparison(StatementForm):
    """`higher` or `lower`: a method is above or below others in the same setting.

    `by`: how far; `factor`: how many times. With an upper bound, the best of the others is meant: the method passes
    each of them by the lower bound, and at least one of them by no more than the upper bound.
    """

    method: Labels
    than: Labels
    by: Bounds | None = None
    factor: Bounds | None = None

    @model_validator(mode="after")
    def _positive(self) -> "MethodComparison":
        if self.factor is not None and self.factor.region.high <= 0:
            raise UserError("factor: its upper bound must be above 0")
        return self

    @property
    def subjects(self) -> tuple[str, ...]:
        """The methods of which it says the same."""
        return self.method

    def about(self, subject: str, units: Sequence[Unit], sign: int) -> Statement:
        """The method is above (or below) each of the others by more than the lower bound."""
        region = self._region()

        def compared(region: Region) -> list[Statement]:
            return [_compared(subject, other, units, sign, region, log=bool(self.factor)) for other in self.than]

        if len(self.than) == 1 or region.high == math.inf:
            return every(compared(region))
        above, below = Region(region.low), Region(high=region.high)
        return every([every(compared(above)), AtLeast(1, tuple(compared(below)))])

    def _region(self) -> Region:
        if self.factor is not None:
            ratio = self.factor.region
            return Region(math.log(ratio.low) if ratio.low > 0 else -math.inf, math.log(ratio.high))
        return ABOVE if self.by is None else self.by.region


class Rank(StatementForm):
    """`highest` or `lowest`: a method is among the `rank` highest or lowest of several."""

    method: Labels
    among: Labels
    rank: int = Field(default=1, ge=1, description="the method is among so many of the highest or lowest")

    @property
    def subjects(self) -> tuple[str, ...]:
        """The methods of which it says the same."""
        return self.method

    def about(self, subject: str, units: Sequence[Unit], sign: int) -> Statement:
        """All others but rank - 1 are not above (or below) the method."""
        others = [other for other in self.among if other != subject]
        parts = [_compared(subject, other, units, sign, Region(0)) for other in others]
        return every(parts) if self.rank == 1 else AtLeast(len(parts) - self.rank + 1, tuple(parts))


class Change(StatementForm):
    """`rises` or `falls`: the value of a method, or its lead over others, changes from each label to the next one.

    `by`: how much.
    """

    of: Labels
    than: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    along: Along
    through: tuple[str, ...] = Field(min_length=2)
    by: Bounds | None = None

    @property
    def subjects(self) -> tuple[str, ...]:
        """The methods of which it says the same."""
        return self.of

    def about(self, subject: str, units: Sequence[Unit], sign: int) -> Statement:
        """The value, or each lead, is higher (or lower) at each label than at the one before."""
        region = ABOVE if self.by is None else self.by.region
        parts = []
        for step, (before, after) in enumerate(pairwise(self.through)):
            of_step = [(unit[step], unit[step + 1]) for unit in units]
            where = f"{_rest(of_step, self.along)} from {before} to {after}"
            for other in self.than or (None,):
                terms = _mean(subject, [(late,) for _, late in of_step], sign)
                terms += _mean(subject, [(early,) for early, _ in of_step], -sign)
                if other is not None:
                    terms += _mean(other, [(late,) for _, late in of_step], -sign)
                    terms += _mean(other, [(early,) for early, _ in of_step], sign)
                name = subject if other is None else f"{subject} − {other}"
                parts.append(Contrast(terms, region, f"{'fall' if sign < 0 else 'rise'} of {name}, {where}"))
        return every(parts)


class Level(Bounds, StatementForm):
    """`level`: the value of a method itself."""

    of: Labels

    @property
    def subjects(self) -> tuple[str, ...]:
        """The methods of which it says the same."""
        return self.of

    def about(self, subject: str, units: Sequence[Unit], sign: int) -> Statement:
        """The value lies within the bounds."""
        return Contrast(_mean(subject, units, sign), self.region, f"{subject}, {_place(units)}")


def _compared(
    subject: str, other: str, units: Sequence[Unit], sign: int, region: Region, *, log: bool = False
) -> Contrast:
    """A method minus another one, or its logarithm minus that of the other; with the opposite sign if sign is -1."""
    first, second = (subject, other) if sign > 0 else (other, subject)
    terms = _mean(first, units, 1) + _mean(second, units, -1)
    return Contrast(terms, region, f"{first} {'/' if log else '−'} {second}, {_place(units)}", log=log)


def _mean(method: str, units: Sequence[Unit], sign: int) -> Terms:
    """The mean of a method's values over units of one setting."""
    return tuple((CellAddress(setting, method), sign / len(units)) for (setting,) in units)


def _place(units: Sequence[Unit]) -> str:
    return f"mean of {len(units)} settings" if len(units) > 1 else units[0][0].path


def _rest(steps: Sequence[tuple[Setting, Setting]], along: Along) -> str:
    """The labels that stay the same."""
    if len(steps) > 1:
        return f"mean of {len(steps)} settings,"
    fields = ("dataset", "partition", "participation")
    return "/".join(getattr(steps[0][0], field) for field in fields if field != along)
