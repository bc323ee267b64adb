"""User-defined methods: a Python file that defines METHOD, a `Recipe`."""

from functools import lru_cache
from pathlib import Path

from bench.input.content import read_own
from bench.input.errors import UserError
from bench.input.user_code import run_file
from bench.methods.compose import check_fit
from bench.methods.recipe import Recipe

KIND = "method file"


def recipe_from_file(file: Path) -> Recipe:
    """The METHOD of a file. Raises `UserError` if the file cannot be read or run, or defines no METHOD."""
    return _load(file, read_own(file, KIND))


@lru_cache(maxsize=32)
def _load(file: Path, source: bytes) -> Recipe:
    method = getattr(run_file(file, source, KIND), "METHOD", None)
    if not isinstance(method, Recipe):
        raise UserError(f"the {KIND} '{file}' must define METHOD = Recipe(...)")
    try:
        check_fit(method.components)
    except UserError as error:
        raise UserError(f"the {KIND} '{file}': {error}") from None
    return method
