"""Tables as lines of text: aligned columns for a terminal, and Markdown."""

import re
from collections.abc import Collection, Iterable, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Columns as wide as their longest cell, two blanks apart; the columns `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_padded(row, widths, right)).rstrip() for row in rows]


def _padded(row: Sequence[str], widths: Sequence[int], right: Collection[int]) -> Iterable[str]:
    for k, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if k in right else cell.ljust(width)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """A pipe table; cells may contain '|' and HTML, which is shown; the columns `right` are aligned to the right."""
    rule = ["---:" if k in right else "---" for k in range(len(header))]
    escaped = ([escape_markdown(cell) for cell in row] for row in rows)
    return [markdown_line(line) for line in (header, rule, *escaped)]


def markdown_line(cells: Iterable[str]) -> str:
    """One line of a pipe table, from cells without unescaped '|'."""
    return f"| {' | '.join(cells)} |"


def escape_markdown(text: str) -> str:
    """Text for a cell of a pipe table."""
    return without_html(text).replace("|", r"\|")


def without_html(text: str) -> str:
    """Text for a line of Markdown, in which HTML is shown and not interpreted; a < that begins no tag remains."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", " ".join(text.splitlines()))
