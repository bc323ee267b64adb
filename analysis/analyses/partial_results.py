"""Parts of a long computation in a file: after a kill those that are done need not be computed again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.files.atomic import write_bytes
from bench.input.errors import UserError


class KeptParts:
    """Results in the order in which they are found, each a line of JSON after a first line that says of what they are.

    `parts` are those of an earlier attempt at the same `key`, else none: a file of another key is overwritten. A line
    that a kill has torn is dropped, and so are those of a second process that writes the same parts. Numbers come back
    to the last bit. Without a file nothing is kept.
    """

    def __init__(self, file: Path | None, key: Mapping[str, Any]) -> None:
        self._file = file
        self.parts: list[Any] = []
        if file is None:
            return
        head = json.dumps(key, sort_keys=True).encode()
        try:
            lines = file.read_bytes().split(b"\n")[:-1] if file.is_file() else []
        except OSError as error:
            raise UserError(f"cannot read '{file}': {error.strerror or error}") from None
        if lines[:1] == [head]:
            self.parts = _whole(lines[1:])
        write_bytes(file, b"\n".join([head, *map(_line, enumerate(self.parts)), b""]))

    def add(self, part: Any) -> None:
        """Keep one more part: what JSON can tell. It survives a kill of the process from here on."""
        self.parts.append(part)
        if self._file is None:
            return
        try:
            with self._file.open("ab") as out:
                out.write(_line((len(self.parts) - 1, part)) + b"\n")
        except OSError as error:
            raise UserError(f"cannot write '{self._file}': {error.strerror or error}") from None


def _whole(lines: list[bytes]) -> list[Any]:
    """The parts numbered 0, 1, 2, ... in this order, up to the first that is missing or damaged."""
    parts: list[Any] = []
    for line in lines:
        try:
            number, part = json.loads(line)
        except (ValueError, TypeError):
            break
        if number == len(parts):
            parts.append(part)
    return parts


def _line(numbered: tuple[int, Any]) -> bytes:
    return json.dumps(numbered).encode()
