"""The keys of search.yaml, the protocol of a grid's search: stages, ranges, points, pairs and budget."""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fedflat.bench.experiments.sections.tuning import SearchRange
from fedflat.bench.input.bounds import Count, Positive, Seed
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.frozen import LABEL, NAME, Frozen
from fedflat.bench.methods.marks import Search

TIMES_DISTANCE = "times_distance"
"""The key of a value that is a multiple of the clients' distance: {times_distance: 2}."""

EQUAL_COMPUTE, ITSELF = "equal_compute", "itself"
"""Entries of `budget.order` of a setting, such as main.equal_compute, besides those of its groups of pairs."""

IN_COMMON = {
    "name", "training_seeds_each", "fitted", "judged", "trials", "refine", "confirm", "widen", "early_stopping",
    "ranges",
}  # fmt: skip
"""The keys that change the trials of every method. Each search adds those of its method and base."""

ROUNDS = "rounds"
"""The entry of `budget.order` for the rule that chooses the rounds."""

Label = Annotated[str, Field(pattern=LABEL)]
Share = Annotated[float, Field(gt=0, lt=0.5)]


class BoundedRange(SearchRange):
    """Where the range of a value begins, and the bound up to which it widens."""

    in_words: ClassVar[str] = "a range of a search"

    bound: tuple[float, float] = Field(
        examples=[[0.003, 2.0]], description="smallest and largest value up to which the range widens"
    )

    @model_validator(mode="after")
    def _within_bound(self) -> "BoundedRange":
        if self.low is None or self.high is None:  # it has values
            raise UserError("a range of a search has low, high and bound, such as {low: 0.1, high: 1, bound: [0.1, 3]}")
        least, most = self.bound
        if not least <= self.low < self.high <= most or (self.log and least <= 0):
            raise UserError(
                f"bound = [{least:g}, {most:g}] of the range {self.low:g} to {self.high:g} (allowed: one that contains "
                "the range, and above 0 with log)"
            )
        return self

    def with_ends(self, low: float, high: float) -> Search:
        """The range with these ends."""
        return Search(low, high, self.log)


class Fitted(Frozen):
    """When a model has fitted its training data."""

    least: float = Field(examples=[99.0], gt=0, le=100, description="smallest value in percent")
    of: Literal["train_accuracy"] = Field(description="the value, as the experiment reports it, on the labels given")


class Tried(Frozen):
    """The trials by which rounds are chosen."""

    methods: tuple[Label, ...] = Field(min_length=1, description="labels")
    seed: Seed = Field(examples=[999], description="tuning seed of these trials only")
    values: dict[str, float] = Field(
        examples=["{rho: 0.1}"], default={}, description="values of those methods that have them"
    )
    trials: Count = Field(examples=[16], description="trials of each method, in the ranges of its base")


class Otherwise(Frozen):
    """What counts where no number of rounds is enough."""

    within_points: Positive = Field(
        examples=[1.0], description="largest difference of training accuracy of a pair that counts"
    )


class RoundsRule(Frozen):
    """How the rounds of a setting are chosen: the smallest candidate with which each tried method is fitted."""

    candidates: tuple[Count, ...] = Field(examples=[[1000, 2000]], min_length=1, description="rounds, increasing")
    tried: Tried
    otherwise: Otherwise
    chosen: dict[Label, Count | None] = Field(
        examples=["{main: 1000}"], description="by setting, the result; null: not chosen yet"
    )

    @model_validator(mode="after")
    def _increasing(self) -> "RoundsRule":
        if list(self.candidates) != sorted(set(self.candidates)):
            raise UserError(f"candidates = {list(self.candidates)} (allowed: increasing numbers)")
        return self


class Stages(Frozen):
    """Numbers of trials of each method and tuning seed."""

    base: Count = Field(examples=[16], ge=2, description="of a base: the experiment's values, and draws in the ranges")
    widen: Count = Field(examples=[4], description="of a base: at new ends, or around the best two")
    refine: Count = Field(examples=[12], description="of a base: around the best two, before its methods take them")
    confirm: Count = Field(
        examples=[4], ge=2, description="with a second seed: of a base before its methods take them, and at the end"
    )
    own: Count = Field(examples=[12], description="points at the base's best two; of a base around its best two")
    further: Count = Field(examples=[4], description="further values at the best so far, or draws around the best two")

    @property
    def shared(self) -> int:
        """The trials of a base whose best are taken by its methods."""
        return self.base + self.widen + self.refine + self.confirm

    @property
    def all(self) -> int:
        """The trials of each method, with those of its base."""
        return self.shared + self.after_shared

    @property
    def after_shared(self) -> int:
        """The trials of each method after those of its base; of a base after the shared ones."""
        return self.own + self.further + self.confirm


class Refine(Frozen):
    """Draws around the best trials."""

    share: Share = Field(examples=[0.1], description="largest distance as a share of each range, on its own scale")
    around: Count = Field(examples=[2], description="number of best trials")


class Confirm(Frozen):
    """The second seed of the best trials: a winner is the best by the mean of both runs, and fitted if both are."""

    seed_plus: Count = Field(examples=[1000], description="added to the tuning seed")


class Widen(Frozen):
    """How ranges widen."""

    near: Share = Field(examples=[0.05], description="share of the range within which the winner is at an end")
    factor: float = Field(
        examples=[2.0], gt=1, description="by which an end moves; without log it moves by half of the range"
    )
    times: Count = Field(examples=[2], description="how often")
    trials: Count = Field(examples=[2], description="trials after each")


class SweptValues(Frozen):
    """What a method tries at the best two trials of its base."""

    base: Label
    points: dict[str, tuple[Any, ...]] = Field(description="one value's points; at the first, the method is its base")
    beyond: float | None = Field(
        examples=[0.8], default=None, description="tried if the last point is the best; null: draws instead"
    )
    fixed: dict[str, Any] = Field(default={}, description="the method's other values")
    further: tuple[dict[str, Any], ...] = Field(default=(), description="other values at the best so far")

    @model_validator(mode="after")
    def _one_value(self) -> "SweptValues":
        if len(self.points) != 1:
            raise UserError(f"points of {', '.join(self.points) or 'nothing'} (allowed: those of one value)")
        if len(self.values) < 2:
            raise UserError(
                f"{len(self.values)} points of {self.value} (allowed: at least two, the first without effect)"
            )
        for change in self.further:
            for name, given in change.items():
                if isinstance(given, Mapping) and name != "swa" and set(given) != {TIMES_DISTANCE}:
                    raise UserError(f"{name} = {given} (allowed: a value, or {{{TIMES_DISTANCE}: 2}})")
        return self

    @property
    def value(self) -> str:
        """The name of the value that has points."""
        return next(iter(self.points))

    @property
    def values(self) -> tuple[Any, ...]:
        """The points; the first one is neutral."""
        return self.points[self.value]

    @property
    def has_scale(self) -> bool:
        """Whether the points are numbers, between which there are others."""
        return all(isinstance(point, int | float) and not isinstance(point, bool) for point in self.values)


class Amounts(Frozen):
    """Factors on a base's amounts, for a row of equal compute."""

    local_steps: Count = Field(examples=[2], default=1, description="factor on the local steps")
    rounds: Count = Field(examples=[2], default=1, description="factor on the rounds, over which the rate falls as far")


class Rule(Frozen):
    """How a pair is decided."""

    unit: Literal["tuning_seed"]
    test: Literal["sign_flip"]
    corrected_over: Literal["all pairs"]
    alpha: float = Field(examples=[0.05], gt=0, lt=1, description="largest corrected p of a verdict")
    interval: float = Field(examples=[0.95], gt=0, lt=1, description="confidence of the t-intervals")
    least_units: Count = Field(examples=[6], description="fewest units of a verdict")


class SameAgainstItself(Frozen):
    """Comparisons of each method with itself, whose values come from another search."""

    values_of: Literal["next_tuning_seed"]
    resamples: Count = Field(examples=[2000], description="draws of tuning seeds")
    random_signs: bool = Field(description="whether each draw has a random sign")


class Budget(Frozen):
    """The time of the search, and the order in which it is spent."""

    core_hours: Positive = Field(examples=[40.0], description="processor hours of the whole search")
    order: tuple[str, ...] = Field(min_length=1, description="rounds, SETTING.GROUP, a contrast or a reference")


class Protocol(Frozen):
    """All keys of search.yaml."""

    in_words: ClassVar[str] = "a protocol"

    name: str = Field(pattern=NAME)
    committed: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="date, before the first search")
    settings: dict[Label, str] = Field(
        min_length=1, description="experiments, each with one setting; the first is main"
    )
    tuning_seeds: tuple[Seed, ...] = Field(
        examples=[[1000, 1001]], description="seeds of searches, shared by all methods", min_length=1
    )
    training_seeds_each: Count = Field(examples=[2], description="runs with the winning values of each tuning seed")
    fitted: Fitted
    judged: Literal["validation_accuracy"]
    rounds: RoundsRule
    trials: Stages
    refine: Refine
    confirm: Confirm
    widen: Widen
    early_stopping: Literal["none"]
    ranges: dict[str, BoundedRange] = Field(description="of all bases that have the value")
    bases: dict[Label, dict[str, BoundedRange]] = Field(min_length=1, description="ranges of their own values")
    methods: dict[Label, SweptValues] = Field(default={}, description="what each method with a base tries, by label")
    left_out: dict[str, str] = Field(default={}, description="methods of the catalog, and why")
    pairs: dict[Label, tuple[tuple[Label, Label], ...]] = Field(description="by group, [method, base]; one family")
    equal_compute: dict[Label, Amounts] = Field(default={}, description="rows of equal compute of each base")
    rule: Rule
    same_against_itself: SameAgainstItself
    contrasts: dict[Label, str] = Field(default={}, description="experiments that are trained with main's winners")
    references: dict[Label, str] = Field(default={}, description="experiments that are trained with their own values")
    flatness_after: tuple[str, ...] = Field(default=(), description="analyses of the runs with winning values")
    budget: Budget

    @model_validator(mode="after")
    def _consistent(self) -> "Protocol":
        _distinct("tuning_seeds", self.tuning_seeds)
        trained = [seed for tuning in self.tuning_seeds for seed in self.training_seeds(tuning)]
        searched = {*self.tuning_seeds, *map(self.second_seed, self.tuning_seeds), self.rounds.tried.seed}
        if double := searched & set(trained):
            raise UserError(f"seed {min(double)} is a tuning seed and a training seed (allowed: seeds of one kind)")
        if self.rounds.tried.seed in self.tuning_seeds:
            raise UserError(f"rounds.tried.seed = {self.rounds.tried.seed} is a tuning seed (allowed: another one)")
        if set(self.rounds.chosen) != set(self.settings):
            raise UserError(f"rounds.chosen has {', '.join(self.rounds.chosen)} (allowed: {', '.join(self.settings)})")
        if self.widen.times * self.widen.trials != self.trials.widen:
            raise UserError(
                f"trials.widen = {self.trials.widen}, but widen.times = {self.widen.times} and widen.trials = "
                f"{self.widen.trials} (allowed: their product)"
            )
        for label, swept in self.methods.items():
            self._check_swept(label, swept)
        for variant, base in self.all_pairs:
            if variant not in self.methods or self.methods[variant].base != base:
                raise UserError(f"pair [{variant}, {base}] (allowed: a method, and its own base)")
        for entry in self.budget.order:
            if entry not in (known := list(self._orders())):
                raise unknown("entry of budget.order", entry, known)
        return self

    def _check_swept(self, label: str, swept: SweptValues) -> None:
        if label in self.bases:
            raise UserError(f"{label} is a base and a method (allowed: one of them)")
        if swept.base not in self.bases:
            raise unknown(f"base of {label}", swept.base, self.bases)
        swept_trials = self.refine.around * (len(swept.values) - 1) + self.widen.trials
        if swept_trials != self.trials.own:
            raise UserError(
                f"{label} has {len(swept.values)} points, which give {swept_trials} own trials (allowed: trials.own = "
                f"{self.trials.own}, so that all methods have as many)"
            )
        if len(swept.further) not in (0, self.trials.further):
            raise UserError(
                f"{label} has {len(swept.further)} further values (allowed: none, or trials.further = "
                f"{self.trials.further}, so that all methods have as many trials)"
            )

    def _orders(self) -> Iterator[str]:
        yield ROUNDS
        for setting in self.settings:
            yield from (f"{setting}.{name}" for name in (*self.pairs, EQUAL_COMPUTE, ITSELF))
        yield from (*self.contrasts, *self.references)

    @property
    def all_pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of all groups."""
        return tuple(pair for group in self.pairs.values() for pair in group)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all bases and methods."""
        return (*self.bases, *self.methods)

    def base_of(self, label: str) -> str:
        """The base of a method; a base itself."""
        return label if label in self.bases else self.methods[label].base

    def training_seeds(self, tuning_seed: int) -> tuple[int, ...]:
        """The seeds of the runs with the values that were found with a tuning seed."""
        first = self.training_seeds_each * self.tuning_seeds.index(tuning_seed)
        return tuple(range(first, first + self.training_seeds_each))

    def second_seed(self, tuning_seed: int) -> int:
        """The other seed of the best trials of a search."""
        return tuning_seed + self.confirm.seed_plus

    def after(self, tuning_seed: int) -> int:
        """The next tuning seed; after the last, the first."""
        return self.tuning_seeds[(self.tuning_seeds.index(tuning_seed) + 1) % len(self.tuning_seeds)]

    def ranges_of(self, base: str) -> dict[str, BoundedRange]:
        """The ranges of a base by the names of values; not all bases have all of them."""
        return {**self.ranges, **self.bases[base]}

    @cached_property
    def identity(self) -> str:
        """Hash of what the searches of all methods have in common, as far as it changes their trials."""
        return short_hash(json.dumps(self.model_dump(mode="json", include=IN_COMMON), sort_keys=True))


def protocol_schema() -> dict[str, Any]:
    """The JSON schema of search.yaml, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Protocol.model_json_schema()}


def _distinct(name: str, seeds: tuple[int, ...]) -> None:
    repeated = [seed for k, seed in enumerate(seeds) if seed in seeds[:k]]
    if repeated:
        raise UserError(f"{name}: {repeated[0]} is listed twice")
