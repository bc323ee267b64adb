"""Errors that a user can correct, reported in one line."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

MOST_NAMES = 30
"""Lists of allowed names in messages are shortened if they are longer."""


class UserError(Exception):
    """Bad input. The message is one line: what is wrong, and what is allowed. The command exits with 2."""


def unknown(kind: str, name: str, allowed: Iterable[str]) -> UserError:
    """A `UserError` for a name that is not in `allowed`, with the nearest allowed name suggested."""
    names = sorted(allowed, key=_with_numbers)
    near = get_close_matches(str(name), names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    listed = ", ".join(names) if len(names) <= MOST_NAMES else first_few(names)
    return UserError(f"unknown {kind} '{name}'{hint} (allowed: {listed or 'none'})")


def _with_numbers(name: str) -> list[tuple[int, str]]:
    """A key that sorts 2 before 10, also within a name."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(name))]


def first_few(names: Sequence[str], shown: int = 4) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
