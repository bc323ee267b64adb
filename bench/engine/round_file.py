"""CSV files with clients of each round: the columns round and client, both counted from 0."""

import functools
from pathlib import Path

import numpy as np

from fedflat.bench.files.column_file import integers, read_columns
from fedflat.bench.input.content import read_known, short_hash
from fedflat.bench.input.errors import UserError

Rounds = tuple[tuple[int, ...], ...]
"""The sorted clients of each round."""


@functools.lru_cache(maxsize=8)
def clients_by_round(file: Path, known_hash: str, kind: str, registered: int, *, every_round: bool = True) -> Rounds:
    """The clients of each round; a `UserError` describes an error in the file. Read and checked once.

    `every_round`: whether a round without clients, before the last one, is an error.
    """
    what = f"the {kind} '{file}'"
    columns = read_columns(read_known(file, known_hash, kind), what)
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
    if len(gaps) and every_round:
        raise UserError(f"{what} has no client in round {gaps[0]}: every round needs one, counted from 0")
    beyond = np.flatnonzero(clients >= registered)
    if len(beyond):
        raise UserError(
            f"{what} has client {clients[beyond[0]]} in round {rounds[beyond[0]]} (allowed: 0 to {registered - 1})"
        )
    listed = dict(zip(numbers.tolist(), np.split(clients, starts[1:]), strict=True))
    return tuple(tuple(listed[t].tolist()) if t in listed else () for t in range(max(listed) + 1))


def is_known(file: Path, known_hash: str | None) -> bool:
    """Whether the file still has the content with this hash: that of a finished run may have been deleted or edited."""
    return file.is_file() and short_hash(file.read_bytes()) == known_hash


def check_length(given: Rounds, file: Path, kind: str, rounds: int) -> None:
    """A `UserError` if the file has fewer rounds."""
    if len(given) < rounds:
        raise UserError(f"the {kind} '{file}' has {len(given)} rounds, but training has {rounds}")
