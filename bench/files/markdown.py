"""Tables in Markdown, as generated pages have them."""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    escaped = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *escaped]]
