"""Participation: the clients that take part in each round."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from fedflat.bench.engine.availability import AnyAvailability
from fedflat.bench.engine.round_file import check_length, clients_by_round, is_known
from fedflat.bench.input.bounds import Count
from fedflat.bench.input.content import stem, with_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.field_words import FilledIn
from fedflat.bench.input.frozen import Frozen
from fedflat.bench.numerics.streams import numpy_stream

KIND = "schedule file"

LONGEST_WAIT = 10_000
"""For how many rounds a round waits for clients, at most."""


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
    availability: AnyAvailability = Field(
        default=None, description="which clients can take part in a round; null: all, in all rounds"
    )

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
        if self.availability is not None and self.sampling == "schedule":
            raise UserError(
                "participation: a schedule already says who takes part in each round (allowed: availability: null)"
            )
        return self

    def check(self, clients: int, rounds: int = 0) -> None:
        """A `UserError` if there are more active than registered clients, or fewer scheduled rounds than `rounds`."""
        if self.active is not None and self.active > clients:
            raise UserError(f"{self.active} active clients per round, but only {clients} are registered")
        if self.availability is not None:
            self.availability.check(clients, rounds)
        # Only a new run needs the schedule.
        if self.file is not None and self.hash is not None and is_known(self.file, self.hash):
            check_length(clients_by_round(self.file, self.hash, KIND, clients), self.file, KIND, rounds)

    def sampled(self, sampling: Literal["fixed", "bernoulli"] | None, clients: int) -> "Participation":
        """The same mean number of clients with another sampling, as in the authors' released code; None: unchanged."""
        if sampling == "bernoulli" and self.active is not None:
            chance = min(1, self.active / self._mean_available(clients))
            return Participation(sampling="bernoulli", probability=chance, availability=self.availability)
        if sampling == "fixed" and self.probability is not None:
            return Participation(active=max(1, round(self.mean_active(clients))), availability=self.availability)
        return self

    def label(self, clients: int) -> str:
        """For example 4-of-20, bernoulli-0.2-of-20, all-of-20, schedule-mine-of-20, or periodic-6-in-24+4-of-20."""
        if self.sampling == "schedule":
            assert self.file is not None  # validated with the sampling
            return "-".join(filter(None, ("schedule", stem(self.file), "of", str(clients))))
        available = "" if self.availability is None else f"{self.availability.label}+"
        share = {"fixed": f"{self.active}", "full": "all"}.get(self.sampling) or f"bernoulli-{self.probability:g}"
        return f"{available}{share}-of-{clients}"

    def mean_active(self, clients: int) -> float:
        """The expected number of active clients in a round."""
        return min(self.active or math.inf, self._mean_available(clients) * (self.probability or 1))

    def _mean_available(self, clients: int) -> float:
        return clients if self.availability is None else clients * self.availability.mean_share(clients)


def available_clients(participation: Participation, clients: int, seed: int, round_index: int) -> list[int]:
    """Sorted ids of the clients that can take part in a round: a function of seed and round alone.

    A round in which nobody is available waits: its clients are those of the next time at which some are. A `UserError`
    if that is more than `LONGEST_WAIT` rounds later.
    """
    if participation.availability is None:
        return list(range(clients))
    for t in range(round_index, round_index + LONGEST_WAIT + 1):
        found = participation.availability.clients_at(clients, seed, t)
        if len(found):
            return [int(i) for i in found]
    raise UserError(
        f"availability {participation.availability.label}: none of {clients} clients is available from round "
        f"{round_index + 1} on, for {LONGEST_WAIT} rounds (allowed: availability by which some are, sooner)"
    )


def active_clients(participation: Participation, clients: int, seed: int, round_index: int) -> list[int]:
    """Sorted ids of the active clients S^t: a function of seed and round alone, so the same for every method.

    `fixed` draws without replacement; `bernoulli` draws each client independently, and repeats if none is active. Both
    draw among the available clients; if they are fewer than `active`, all of them take part.
    """
    stream = numpy_stream(seed, "participation", round_index)
    if participation.sampling == "schedule":
        assert participation.file is not None  # validated with the sampling
        assert participation.hash is not None
        schedule = clients_by_round(participation.file, participation.hash, KIND, clients)
        check_length(schedule, participation.file, KIND, round_index + 1)
        return list(schedule[round_index])
    available = available_clients(participation, clients, seed, round_index)
    if participation.sampling == "full":
        return available
    if participation.sampling == "fixed":
        assert participation.active is not None  # validated with the sampling
        chosen = stream.choice(len(available), size=min(participation.active, len(available)), replace=False)
    else:
        assert participation.probability is not None  # validated with the sampling
        chosen = np.empty(0, dtype=np.int64)
        while len(chosen) == 0:
            chosen = np.flatnonzero(stream.random(len(available)) < participation.probability)
    return sorted(available[i] for i in chosen)


def counted(participation: Participation, clients: int, seed: int, round_index: int) -> dict[str, float]:
    """The number of available clients in a round, by the name of its column in the metrics; nothing if all are.

    If nobody is, it is that of the time for which the round waits.
    """
    if participation.availability is None:
        return {}
    return {"available": float(len(available_clients(participation, clients, seed, round_index)))}


def scheduled_rounds(participation: Participation, clients: int) -> float:
    """The number of rounds whose participants are known: the length of a file; infinite if there is none."""
    if participation.availability is not None:
        return participation.availability.rounds(clients)
    if participation.file is None or participation.hash is None:
        return math.inf
    return len(clients_by_round(participation.file, participation.hash, KIND, clients))
