"""Findings of the conformance suite, each one line."""

from dataclasses import dataclass
from pathlib import Path

from fedflat.bench.input.errors import one_line

EXCEPTIONS = "exceptions"
IMPORTS = "imported files"
HOOKS = "names of hooks"
SHAPES = "shapes and number formats"
EDITS = "edits in place"
FINITE = "finite numbers"
SIGNS = "signs"
RADIUS = "length of the perturbation"
NEUTRAL = "neutral values"
HIDDEN = "hidden state"
RANDOM = "random numbers"
ORDER = "order of the clients"
RESUME = "resuming"
COHORT = "cohort and loop"
EFFECTS = "effects"
DIFFERENCE = "difference from FedAvg"
COSTS = "costs"
CHECKS = (
    EXCEPTIONS,
    IMPORTS,
    HOOKS,
    SHAPES,
    EDITS,
    FINITE,
    SIGNS,
    RADIUS,
    NEUTRAL,
    HIDDEN,
    RANDOM,
    ORDER,
    RESUME,
    COHORT,
    EFFECTS,
    DIFFERENCE,
    COSTS,
)
"""The names of the checks, in the order of the output."""


@dataclass(frozen=True)
class Place:
    """A line of a file; `line` None: it is not known."""

    file: Path
    line: int | None = None

    def __str__(self) -> str:
        return str(self.file) if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Finding:
    """What a check expected, what it saw, and how to mend it; `check` is the name of the check."""

    check: str
    place: Place
    expected: str
    seen: str
    mend: str

    def __str__(self) -> str:
        return one_line(
            f"{self.place}: {self.check}: expected {self.expected}; seen: {self.seen}; to mend it: {self.mend}"
        )
