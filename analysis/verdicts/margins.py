"""The margins of the verdicts, and what each paper states about repetitions: `paper_tables/verdicts.yaml`."""

import math
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, model_validator

from fedflat.analysis.published.numbers import PublishedNumber
from fedflat.bench.experiments.files import PAPER_TABLES, read_yaml
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen

Form = Literal["values", "multiples", "gains", "gains_in_percent"]
"""What a column shows of a metric: the values themselves, or comparisons with another method."""


class Margin(Frozen):
    """How far a reproduced number may be from the published one; exactly one key is given."""

    points: float | None = Field(
        examples=[1], default=None, gt=0, description="largest difference, in the unit of the metric"
    )
    percent: float | None = Field(
        examples=[10],
        default=None,
        gt=0,
        description="p: the numbers may differ by a factor of 1 + p / 100; decided on logarithms",
    )
    exact: Literal[True] | None = Field(default=None, description="equal in all printed decimals; needs no repetitions")
    not_judged: str | None = Field(default=None, description="why numbers of this metric are not judged")

    @model_validator(mode="after")
    def _one_key(self) -> "Margin":
        if len(given := self.model_dump(exclude_none=True)) != 1:
            raise UserError(f"a margin has exactly one of {', '.join(Margin.model_fields)}, not {given or 'none'}")
        return self

    def width(self, number: PublishedNumber, unit: float = 1) -> float:
        """The margin around a published number, widened by half a unit of its last printed decimal.

        For `percent`, the margin of the logarithm; the number must then be larger than its rounding error. `unit`: the
        number by which a column divides its values.
        """
        if self.percent is None or number.value is None:
            return (self.points or 0) / unit + number.half_unit
        return math.log1p(self.percent / 100) - math.log1p(-number.half_unit / number.value)

    def __str__(self) -> str:
        """The margin in words, for the foot of a table."""
        if self.points is not None:
            return f"{self.points:g} point{'' if self.points == 1 else 's'}"
        return f"{self.percent:g} %" if self.percent is not None else self.not_judged or "exact"


class Repetitions(Frozen):
    """What a paper states about repeated runs."""

    seeds: int | None = Field(
        examples=[3], default=None, ge=1, description="seeds per published number; null: not stated"
    )
    deviation: Literal["seeds", "clients", "rounds"] | None = Field(
        default=None, description="over what the printed ± is a deviation; null: none is printed"
    )


class Rules(Frozen):
    """The file `paper_tables/verdicts.yaml`: margins by form and metric, and the repetitions of each paper."""

    values: dict[str, Margin]
    multiples: dict[str, Margin]
    gains: dict[str, Margin]
    gains_in_percent: dict[str, Margin]
    papers: dict[str, Repetitions]

    def margin(self, metric: str, form: Form) -> Margin:
        """The margin of a metric in a form; a metric without one is not judged."""
        margins: dict[str, Margin] = getattr(self, form)
        return margins.get(metric, Margin(not_judged="no margin is set"))

    def is_exact(self, metric: str) -> bool:
        """Whether values of a metric are counts; some are printed as multiples only, and have a margin only there."""
        return any(self.margin(metric, form).exact is not None for form in get_args(Form))

    def repetitions(self, paper: str) -> Repetitions:
        """What a paper states about repeated runs."""
        return self.papers.get(paper, Repetitions())


def read_rules(file: Path) -> Rules:
    """The rules in a file."""
    return Rules.parse(read_yaml(file), where=f"'{file}'")


@cache
def rules() -> Rules:
    """The rules of all verdicts, from their file."""
    return read_rules(PAPER_TABLES / "verdicts.yaml")
