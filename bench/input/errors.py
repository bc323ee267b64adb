"""Errors that a user can correct, reported in one line."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

MOST_NAMES = 30
"""Lists of allowed names in messages are shortened if they are longer."""


MOST_COMPARED = 200
"""More mistakes are not compared with each other, because the time grows with the square of their number."""

LONGEST_NAME, LONGEST_LINE = 300, 3000
"""Longer words and lines in messages are shortened in the middle, such as a name of 5,000 letters."""


class UserError(Exception):
    """Bad input. The message is one line: what is wrong, and what is allowed. The command exits with 2."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class SeveralMistakesError(UserError):
    """Several mistakes in one input, each in a line of its own below a line that says where they are."""

    def __init__(self, where: str, mistakes: Iterable[str]) -> None:
        self.where, self.mistakes = where, distinct(map(one_line, mistakes))
        shown = self.mistakes[:MOST_NAMES]
        hidden = len(self.mistakes) - len(shown)
        more = [f"and {hidden} more"] if hidden else []
        Exception.__init__(self, "\n  ".join([one_line(f"{where}: {len(self.mistakes)} problems"), *shown, *more]))


def distinct(mistakes: Iterable[str]) -> tuple[str, ...]:
    """The texts without repetitions, also without those that only add a place to another one."""
    texts = dict.fromkeys(mistakes)
    if len(texts) > MOST_COMPARED:
        return tuple(texts)
    return tuple(text for text in texts if not any(text.endswith(f": {other}") for other in texts if other != text))


def all_mistakes(errors: Iterable[UserError], where: str = "") -> list[str]:
    """The messages of errors; each mistake of several in one input is a message of its own, which says where it is.

    `where`: the place that all of them have in common; messages do not begin with it.
    """
    found: dict[str, None] = {}
    for error in errors:
        texts = [str(error)]
        if isinstance(error, SeveralMistakesError):
            texts = [f"{error.where}: {mistake}" for mistake in error.mistakes]
        found |= dict.fromkeys(text.removeprefix(f"{where}: ") for text in texts)
    return list(distinct(found))


def located(where: str, error: UserError) -> UserError:
    """The same error with the place where it was found."""
    mistakes = all_mistakes([error])
    return SeveralMistakesError(where, mistakes) if len(mistakes) > 1 else UserError(f"{where}: {mistakes[0]}")


def raise_all(where: str, errors: Sequence[UserError]) -> None:
    """Raise one error for all of them, if there are any: the only one as it is, or `SeveralMistakesError`."""
    mistakes = all_mistakes(errors)
    if len(mistakes) == 1:
        raise errors[0]
    if mistakes:
        raise SeveralMistakesError(where, mistakes)


def one_line(text: str) -> str:
    r"""The text with line ends and other control characters as escapes, such as \n; long words are shortened."""
    printable = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in _shortened(text, LONGEST_LINE)
    )
    return re.sub(rf"\S{{{LONGEST_NAME},}}", lambda word: _shortened(word[0], LONGEST_NAME), printable)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 4 :]}"


def unknown(
    kind: str, name: str, allowed: Iterable[str], meant: str | None = None, *, most: int = MOST_NAMES
) -> UserError:
    """A `UserError` for a name that is not in `allowed`. `meant` is suggested; None: the nearest allowed name.

    The message has all allowed names if there are not more than `most`.
    """
    names = sorted(allowed, key=_with_numbers)
    near = [meant] if meant is not None else _near(str(name), names)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    listed = ", ".join(names) if len(names) <= most else first_few(names)
    return UserError(f"unknown {kind} '{name}'{hint} (allowed: {listed or 'none'})")


def _near(name: str, names: Sequence[str]) -> list[str]:
    """The nearest name, unless it is the opposite, as iid is of noniid."""
    near = get_close_matches(name[:LONGEST_NAME], names, n=1)  # its time grows with the square of the length
    return [] if near and re.fullmatch(rf"(non|not|no)[-_ ]?{re.escape(near[0])}", name.lower()) else near


def _with_numbers(name: str) -> list[tuple[int, str]]:
    """A key that sorts 2 before 10, also within a name."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(name))]


def counted(count: int, what: str) -> str:
    """Such as 1 run, 2 runs."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def first_few(names: Sequence[str], shown: int = 4) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
