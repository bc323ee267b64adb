"""Saved steps of a long computation: after a kill, finished steps need not be computed again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedflat.bench.files.atomic import write_bytes
from fedflat.bench.files.checksums import checksum
from fedflat.bench.input.errors import UserError


class PartialResults:
    """The results of finished steps, in order, as JSON values; each is in the file once `add` returns.

    The file's first line is the `key`: everything that the results depend on. If the file has the same key, `finished`
    starts with its results; else the file is overwritten. Numbers are restored to the last bit. Each line contains its
    number and a checksum, so that damaged lines (such as truncated ones after a kill) and repeated lines (from a second
    process) are dropped. If `file` is None, nothing is saved.
    """

    def __init__(self, file: Path | None, key: Mapping[str, Any]) -> None:
        self._file = file
        self.finished: list[Any] = []
        if file is None:
            return
        head = json.dumps(key, sort_keys=True).encode()
        try:
            lines = file.read_bytes().split(b"\n")[:-1] if file.is_file() else []
        except OSError as error:
            raise UserError(f"cannot read '{file}': {error.strerror or error}") from None
        if lines[:1] == [head]:
            self.finished = _parsed(lines[1:])
        write_bytes(file, b"\n".join([head, *map(_line, enumerate(self.finished)), b""]))

    def add(self, result: Any) -> None:
        """Save the result of one more step, a JSON value."""
        self.finished.append(result)
        if self._file is None:
            return
        try:
            with self._file.open("ab") as out:
                out.write(_line((len(self.finished) - 1, result)) + b"\n")
        except OSError as error:
            raise UserError(f"cannot write '{self._file}': {error.strerror or error}") from None


def _parsed(lines: list[bytes]) -> list[Any]:
    """The results numbered 0, 1, 2, ..., up to the first line that is damaged; repeated numbers are skipped."""
    results: list[Any] = []
    for line in lines:
        try:
            number, result, _ = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            break
        if line != _line((number, result)):
            break
        if number == len(results):
            results.append(result)
    return results


def _line(numbered: tuple[int, Any]) -> bytes:
    return json.dumps([*numbered, checksum(json.dumps(numbered).encode())]).encode()
