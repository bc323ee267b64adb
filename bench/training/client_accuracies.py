"""The accuracy of each client by round: a table that grows on disk, so that memory does not grow with the rounds."""

import gzip
import os
from pathlib import Path

import numpy as np

from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.base import Floats

COLUMNS = ("round", "client", "accuracy")


class ClientAccuracies:
    """A CSV file in parts that are compressed one by one.

    `size`: the bytes of the parts that count, of a run that is resumed; what was written after them is cut off. A
    `UserError` if they are no longer there.
    """

    def __init__(self, file: Path, size: int = 0) -> None:
        self._file = file
        if not size:
            self._write("wb", ",".join(COLUMNS) + "\n")
        elif not file.is_file() or file.stat().st_size < size:
            raise UserError(f"'{file}' was cut off or deleted; delete '{file.parent}' to train from the start")
        else:
            os.truncate(file, size)

    @property
    def size(self) -> int:
        """The bytes of the parts so far, which are on disk when this returns."""
        with self._file.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def add(self, finished: int, accuracies: Floats) -> None:
        """The accuracy of each client `[N]` after a round."""
        lines = (f"{finished},{i},{'' if np.isnan(one) else repr(float(one))}\n" for i, one in enumerate(accuracies))
        self._write("ab", "".join(lines))

    def _write(self, mode: str, text: str) -> None:
        try:
            with self._file.open(mode) as file:
                file.write(gzip.compress(text.encode(), mtime=0))  # no time stamp: equal runs give equal bytes
        except OSError as error:
            raise UserError(f"cannot write '{self._file}': {error.strerror or error}") from None
