"""Errors that a user can correct, reported in one line."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

MOST_NAMES = 30
"""Lists of allowed names in messages are shortened if they are longer."""


LONGEST_NAME, LONGEST_LINE = 300, 3000
"""Longer words and lines in messages are shortened in the middle, such as a name of 5,000 letters."""


class UserError(Exception):
    """Bad input. The message is one line: what is wrong, and what is allowed. The command exits with 2."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    r"""The text with line ends and other control characters as escapes, such as \n; long words are shortened."""
    printable = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in _shortened(text, LONGEST_LINE)
    )
    return re.sub(rf"\S{{{LONGEST_NAME},}}", lambda word: _shortened(word[0], LONGEST_NAME), printable)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 4 :]}"


def unknown(kind: str, name: str, allowed: Iterable[str]) -> UserError:
    """A `UserError` for a name that is not in `allowed`, with the nearest allowed name suggested."""
    names = sorted(allowed, key=_with_numbers)
    near = get_close_matches(str(name)[:LONGEST_NAME], names, n=1)  # its time grows with the square of the length
    hint = f"; did you mean '{near[0]}'?" if near else ""
    listed = ", ".join(names) if len(names) <= MOST_NAMES else first_few(names)
    return UserError(f"unknown {kind} '{name}'{hint} (allowed: {listed or 'none'})")


def _with_numbers(name: str) -> list[tuple[int, str]]:
    """A key that sorts 2 before 10, also within a name."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(name))]


def first_few(names: Sequence[str], shown: int = 4) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
