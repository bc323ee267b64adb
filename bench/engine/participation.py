"""Participation: the clients that take part in each round."""

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from bench.files.column_file import integers, read_columns
from bench.input.bounds import Count
from bench.input.content import read_known, short_hash, stem, with_hash
from bench.input.errors import UserError
from bench.input.field_words import FilledIn
from bench.input.frozen import Frozen
from bench.numerics.streams import numpy_stream

KIND = "schedule file"


class Participation(Frozen):
    """The rule for which clients take part in a round.

    `fixed`: `active` clients, drawn without replacement; `bernoulli`: each client with `probability`; `full`: all
    clients; `schedule`: those listed in `file`, a CSV with the columns round and client, both counted from 0.
    """

    sampling: Literal["fixed", "bernoulli", "full", "schedule"] = "fixed"
    active: Count | None = Field(
        default=None,
        examples=[4],
        description="clients per round, for fixed sampling; or all. For a share of the clients: "
        "{sampling: bernoulli, probability: 0.2}",
    )
    probability: float | None = Field(
        default=None, gt=0, le=1, examples=[0.2], description="for bernoulli sampling; no round is empty"
    )
    file: Path | None = Field(default=None, description="CSV of round and client, for sampling by schedule")
    hash: Annotated[str | None, FilledIn()] = Field(default=None, description="of the file's content; filled in")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("active") == "all" and data.get("sampling", "full") == "full":
            data = {"sampling": "full", **{key: value for key, value in data.items() if key != "active"}}
        return with_hash(data, KIND)

    @model_validator(mode="after")
    def _one_size(self) -> "Participation":
        needed = {"fixed": ["active"], "bernoulli": ["probability"], "full": [], "schedule": ["file", "hash"]}
        given = [field for field in ("active", "probability", "file", "hash") if getattr(self, field) is not None]
        if given != needed[self.sampling]:
            raise UserError(
                "participation needs active with sampling: fixed, probability with sampling: bernoulli, file with "
                "sampling: schedule, and none of these keys with sampling: full"
            )
        return self

    def check(self, clients: int, rounds: int = 0) -> None:
        """A `UserError` if there are more active than registered clients, or fewer scheduled rounds than `rounds`."""
        if self.active is not None and self.active > clients:
            raise UserError(f"{self.active} active clients per round, but only {clients} are registered")
        # Only a new run needs the schedule: the file of a finished run may have been deleted or edited.
        if self.file is not None and self.file.is_file() and short_hash(self.file.read_bytes()) == self.hash:
            _check_length(_schedule(self.file, self.hash, clients), self.file, rounds)

    def sampled(self, sampling: Literal["fixed", "bernoulli"] | None, clients: int) -> "Participation":
        """The same mean number of clients with another sampling, as in the authors' released code; None: unchanged."""
        if sampling == "bernoulli" and self.active is not None:
            return Participation(sampling="bernoulli", probability=self.active / clients)
        if sampling == "fixed" and self.probability is not None:
            return Participation(active=max(1, round(self.probability * clients)))
        return self

    def label(self, clients: int) -> str:
        """For example 4-of-20, bernoulli-0.2-of-20, all-of-20, or schedule-mine-of-20."""
        if self.sampling == "schedule":
            assert self.file is not None  # validated with the sampling
            return "-".join(filter(None, ("schedule", stem(self.file), "of", str(clients))))
        share = {"fixed": f"{self.active}", "full": "all"}.get(self.sampling) or f"bernoulli-{self.probability:g}"
        return f"{share}-of-{clients}"


def active_clients(participation: Participation, clients: int, seed: int, round_index: int) -> list[int]:
    """Sorted ids of the active clients S^t: a function of seed and round alone, so the same for every method.

    `fixed` draws without replacement; `bernoulli` draws each client independently, and repeats if none is active.
    """
    stream = numpy_stream(seed, "participation", round_index)
    if participation.sampling == "full":
        return list(range(clients))
    if participation.sampling == "schedule":
        assert participation.file is not None  # validated with the sampling
        assert participation.hash is not None
        schedule = _schedule(participation.file, participation.hash, clients)
        _check_length(schedule, participation.file, round_index + 1)
        return list(schedule[round_index])
    if participation.sampling == "fixed":
        chosen = stream.choice(clients, size=participation.active, replace=False)
    else:
        assert participation.probability is not None  # validated with the sampling
        chosen = np.empty(0, dtype=np.int64)
        while len(chosen) == 0:
            chosen = np.flatnonzero(stream.random(clients) < participation.probability)
    return sorted(int(i) for i in chosen)


def scheduled_rounds(participation: Participation, clients: int) -> float:
    """The number of rounds with participants: the length of the schedule; infinite for other samplings."""
    if participation.file is None or participation.hash is None:
        return math.inf
    return len(_schedule(participation.file, participation.hash, clients))


Schedule = tuple[tuple[int, ...], ...]


@functools.lru_cache(maxsize=8)
def _schedule(file: Path, known_hash: str, registered: int) -> Schedule:
    """The sorted clients of each round; a `UserError` describes an error in the file. Read and checked once."""
    what = f"the {KIND} '{file}'"
    columns = read_columns(read_known(file, known_hash, KIND), what)
    rounds, clients = (integers(columns, name, what) for name in ("round", "client"))
    for name, column in (("round", rounds), ("client", clients)):
        if column.min() < 0:
            raise UserError(f"{what}: {name} = {column.min()}: rounds and clients are counted from 0")
    order = np.lexsort((clients, rounds))
    rounds, clients = rounds[order], clients[order]
    twice = np.flatnonzero((np.diff(rounds) == 0) & (np.diff(clients) == 0))
    if len(twice):
        raise UserError(f"{what} has client {clients[twice[0]]} twice in round {rounds[twice[0]]}")
    numbers, starts = np.unique(rounds, return_index=True)
    gaps = np.flatnonzero(numbers != np.arange(len(numbers)))
    if len(gaps):
        raise UserError(f"{what} has no client in round {gaps[0]}: every round needs one, counted from 0")
    beyond = np.flatnonzero(clients >= registered)
    if len(beyond):
        raise UserError(
            f"{what} has client {clients[beyond[0]]} in round {rounds[beyond[0]]} (allowed: 0 to {registered - 1})"
        )
    return tuple(tuple(part.tolist()) for part in np.split(clients, starts[1:]))


def _check_length(schedule: Schedule, file: Path, rounds: int) -> None:
    if len(schedule) < rounds:
        raise UserError(f"the {KIND} '{file}' has {len(schedule)} rounds, but training has {rounds}")
