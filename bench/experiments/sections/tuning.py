"""The sections of an experiment about tuning: search ranges, how `fedflat tune` searches, and what it has searched."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, field_validator, model_validator

from fedflat.bench.input.bounds import MOST_ENTRIES, Seed
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.methods.marks import Search


class SearchRange(Frozen):
    """A range that replaces the one that stands with a value."""

    in_words: ClassVar[str] = "a search range"

    low: float | None = Field(examples=[0.01], default=None, description="smallest value")
    high: float | None = Field(examples=[0.5], default=None, description="largest value")
    log: bool = Field(default=False, strict=True, description="whether values are drawn evenly in the logarithm")
    values: tuple[StrictBool | StrictInt | StrictFloat | StrictStr, ...] | None = Field(
        default=None, max_length=MOST_ENTRIES, description="the only values, instead of low and high"
    )

    @model_validator(mode="after")
    def _not_contradictory(self) -> "SearchRange":
        self.search  # noqa: B018 - raises if it is
        return self

    @property
    def search(self) -> Search:
        """The range."""
        return Search(self.low, self.high, self.log, self.values)


SearchRanges = dict[str, SearchRange | None]
"""Ranges by the names of values, such as lr, rho or swa.cycle; null: the value is not searched."""


class Tuning(Frozen):
    """How `fedflat tune` searches in each cell."""

    trials: int = Field(default=16, ge=1, le=MOST_ENTRIES, description="configurations of each method in each setting")
    seed: Seed | None = Field(
        examples=[0],
        default=None,
        description="seed of partitions, initial models and search; null: the first of grid.seeds + 1000",
    )
    validation: float = Field(
        default=0.2, gt=0, lt=1, description="share of its training images that each client holds out"
    )
    rungs: tuple[float, ...] = Field(
        default=(0.125, 0.25, 0.5),
        max_length=MOST_ENTRIES,
        description="shares of the rounds after which the better half of the trials goes on; []: all are trained",
    )

    @field_validator("rungs")
    @classmethod
    def _increasing(cls, rungs: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 < share < 1 for share in rungs) or list(rungs) != sorted(set(rungs)):
            raise UserError(f"rungs = {list(rungs)} (allowed: increasing numbers between 0 and 1, such as [0.25, 0.5])")
        return rungs


class Tuned(Frozen):
    """What `fedflat tune` has searched to find the values of an experiment. It writes this section itself."""

    in_words: ClassVar[str] = "tuned"

    experiment: str = Field(description="the experiment that was tuned")
    trials: int = Field(ge=1, description="configurations of each method in each setting")
    seed: Seed = Field(examples=[0], description="seed of partitions, initial models and search")
    validation: Annotated[float, Field(gt=0, lt=1)] | Literal["own"] = Field(
        description="share of the training images that clients held out; or own, the data set's images for validation"
    )
    score: str = Field(description="how a trial is scored")
    rungs: tuple[float, ...] = Field(description="shares of the rounds after which the better half went on")
    ranges: dict[str, dict[str, SearchRange]] = Field(description="by label and name, the ranges")
    searched: dict[str, tuple[str, ...]] = Field(
        default={}, description="by label, the settings that were searched; earlier versions did not write it"
    )
    protocol: str | None = Field(
        default=None, description="written by fedflat search: the hash of the protocol, which all its seeds have"
    )
    set: dict[str, Any] = Field(default={}, description="values of the experiment that --set replaced for the trials")
    untuned: dict[str, dict[str, str]] = Field(
        default={}, description="by label and setting, why a method keeps the experiment's values there"
    )


def judged_images(validation: float | str) -> str:
    """The images on which trials were scored, in words."""
    return (
        "the data set's images for validation"
        if isinstance(validation, str)
        else f"{100 * validation:g} % of the clients' training images"
    )


def as_yaml(search: Search) -> dict[str, Any]:
    """A range as an experiment's file gives it."""
    if search.values is not None:
        return {"values": list(search.values)}
    return {"low": search.low, "high": search.high, **({"log": True} if search.log else {})}
