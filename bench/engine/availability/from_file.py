"""Availability that is read from a file, for example from a trace of devices."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedflat.bench.engine.availability.base import Availability
from fedflat.bench.engine.round_file import Rounds, check_length, clients_by_round, is_known
from fedflat.bench.input.content import stem, with_hash
from fedflat.bench.input.field_words import FilledIn

KIND = "availability file"


class AvailabilityFromFile(Availability):
    """The clients in a CSV file with the columns round and client, both counted from 0; a round may have none."""

    name: Literal["from_file"] = "from_file"
    file: Path = Field(description="CSV of round and client")
    hash: Annotated[str | None, FilledIn()] = Field(default=None, description="of the file's content; filled in")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        return with_hash(data, KIND)

    @property
    def label(self) -> str:
        """For example file-phones."""
        return "-".join(filter(None, ("file", stem(self.file))))

    def check(self, clients: int, rounds: int) -> None:
        """The file has clients for each round, and no others. That of a finished run may have been deleted."""
        if is_known(self.file, self.hash):
            check_length(self._read(clients), self.file, KIND, rounds)

    def rounds(self, clients: int) -> float:
        """Those of the file."""
        return len(self._read(clients))

    def clients_at(self, clients: int, seed: int, t: int) -> NDArray[np.int64]:
        """Those of round t."""
        rounds = self._read(clients)
        check_length(rounds, self.file, KIND, t + 1)
        return np.array(rounds[t], dtype=np.int64)

    def _read(self, clients: int) -> Rounds:
        assert self.hash is not None  # filled in
        return clients_by_round(self.file, self.hash, KIND, clients, every_round=False)

    def mean_share(self, clients: int) -> float:
        """The mean over the rounds of the file."""
        return float(np.mean([len(listed) for listed in self._read(clients)])) / clients
