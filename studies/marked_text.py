"""Generated parts of a document: <!-- NAME:begin -->, the part, <!-- NAME:end -->."""

from pathlib import Path

from fedflat.bench.files.atomic import write_text
from fedflat.bench.input.errors import UserError


def marks(name: str) -> tuple[str, str]:
    """The marks before and after a part."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def has_part(document: Path, name: str) -> bool:
    """Whether a document has the mark before a part."""
    return marks(name)[0] in document.read_text(encoding="utf-8")


def part(document: Path, name: str) -> str:
    """What a document has between the marks, without blank lines around it. A `UserError` if it has not both once."""
    return _split(document, name)[1].strip()


def rewrite_part(document: Path, name: str, content: str) -> None:
    """Replace what is between the marks; the other text remains. A `UserError` if the document has not both once."""
    before, _, after = _split(document, name)
    begin, end = marks(name)
    write_text(document, f"{before}{begin}\n\n{content}\n\n{end}{after}")


def _split(document: Path, name: str) -> tuple[str, str, str]:
    text, (begin, end) = document.read_text(encoding="utf-8"), marks(name)
    if not (text.count(begin) == text.count(end) == 1 and text.index(begin) < text.index(end)):
        raise UserError(f"'{document}' has no place for a generated part (allowed: a document with {begin} and {end})")
    before, _, rest = text.partition(begin)
    inside, _, after = rest.partition(end)
    return before, inside, after
