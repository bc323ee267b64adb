"""How an analysis was made, as every row of its tidy file tells: options, runs beside it, code."""

import ast
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

from bench.training.code_version import code_fingerprint

MADE = ("options", "beside", "code")
"""Those columns: all options, the identities of the runs beside, and the code's fingerprint."""

_PACKAGE = Path(__file__).parents[1]


@functools.cache
def analysis_fingerprint(name: str) -> str:
    """A fingerprint of the code that an analysis' numbers come from: bench/ and what it imports; 16 hex digits."""
    digest = hashlib.sha256(code_fingerprint().encode())
    for file in sorted(_used_by(name)):
        digest.update(str(file.relative_to(_PACKAGE)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _used_by(name: str) -> set[Path]:
    """The modules of this package that the analysis is or imports, directly or not: no other analysis, no figure."""
    found: set[Path] = set()
    left = [_PACKAGE / "analyses" / "run.py", *_PACKAGE.glob(f"analyses/*/{name}.py")]
    while left:
        file = left.pop()
        if file not in found:
            found.add(file)
            imports = (node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.ImportFrom))
            left += [place for node in imports for place in _files(node)]
    return found


def _files(node: ast.ImportFrom) -> list[Path]:
    """The files of this package that `from module import names` reads: the module's, or those of the modules named."""
    _, *inner = (node.module or "").split(".")
    if not (node.module or "").startswith("analysis."):
        return []
    place = _PACKAGE.joinpath(*inner)
    if not place.is_dir():
        return [place.with_suffix(".py")]
    named = [place / f"{alias.name}.py" for alias in node.names]
    return [place / "__init__.py", *(file for file in named if file.is_file())]


def in_words(pairs: Iterable[tuple[str, str]]) -> str:
    """Options, or identities of runs by method: for example 'data="train"; images=500'."""
    return "; ".join(f"{name}={value}" for name, value in pairs)


def first_difference(there: str, here: str) -> str | None:
    """The first part in which two of these texts differ, as 'images=500 there, images=null here'; None: none does."""
    a, b = there.split("; "), here.split("; ")
    if sorted(a) == sorted(b):
        return None
    only = [next((part for part in one if part not in other), "nothing") for one, other in ((a, b), (b, a))]
    return f"{only[0]} there, {only[1]} here"
