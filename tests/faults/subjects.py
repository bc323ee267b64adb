"""What the campaign trains: every method, forms of SWA and released codes, and the ways in which they are computed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.released import RELEASES
from fedflat.bench.training.engine_choice import EngineChoice

Changes = dict[str, Any]
"""Values of `--set` by key."""


@dataclass(frozen=True)
class Subject:
    """A method of the experiment `quick_catalog` with further settings."""

    name: str
    method: str
    changes: Changes


@dataclass(frozen=True)
class Way:
    """How the engine computes a run. With `measured` choices, each process finds another of them in its home folder."""

    name: str
    changes: Changes
    seeds: Sequence[int] = (0,)
    threads: int = 1
    measured: Sequence[EngineChoice] = ()


def _swa(method: str, collect: str) -> Subject:
    swa = {"start": 3, "cycle": 2, "lr_end": 0.01, "collect": collect}
    return Subject(f"{method} with SWA, {collect}", method, {f"methods.{method}.hyperparameters.swa": swa})


SUBJECTS = (
    *(Subject(method, method, {}) for method in CATALOG),
    *(_swa("fedavg", collect) for collect in ("end", "release", "alg1", "none")),
    *(_swa(method, "end") for method in ("fedsam", "fedasam")),
    *(Subject(f"{method}, released", method, {f"methods.{method}.variant": "released"}) for method in RELEASES),
)

WAYS = (
    Way("loop", {"engine.backend": "loop"}),
    Way("parallel", {"engine.backend": "parallel"}, threads=2),
    Way("cohort", {"engine.backend": "cohort", "engine.seeds": "apart"}, seeds=(0, 1)),
    Way("cohort, seeds together", {"engine.backend": "cohort", "engine.seeds": "together"}, seeds=(0, 1, 2)),
    Way(
        "auto, other home after each kill",
        {},
        seeds=(0, 1, 2),
        measured=(EngineChoice("cohort"), EngineChoice("loop", channels_last=True), EngineChoice("loop")),
    ),
)


def cases() -> Iterator[tuple[Subject, Way]]:
    """Every subject in every way; each pass over all subjects gives each another way."""
    for first in range(len(WAYS)):
        for k, subject in enumerate(SUBJECTS):
            yield subject, WAYS[(first + k) % len(WAYS)]
