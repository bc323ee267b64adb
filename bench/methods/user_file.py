"""User-defined methods: a Python file that defines METHOD, a `Recipe`."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from fedflat.bench.code.user_code import refuse_own_imports, run_file
from fedflat.bench.input.content import read_own
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.compose import check_fit, combine
from fedflat.bench.methods.recipe import Recipe

KIND = "method file"


def recipe_from_file(file: Path, chosen: Mapping[str, str] | None = None) -> Recipe:
    """The METHOD of a file, with the components of the catalog that `chosen` names in other slots.

    Raises `UserError` if the file cannot be read or run, imports another one of its folder, or defines no METHOD, or if
    the components do not fit.
    """
    method = _load(file, read_own(file, KIND))
    try:
        if chosen:
            return combine(method, chosen)
        check_fit(method.components)
    except UserError as error:
        raise UserError(f"the {KIND} '{file}': {error}") from None
    return method


def executed_again(file: Path) -> Recipe:
    """The METHOD of a file in a new module, whose variables have their first values, as in a new process."""
    return _load.__wrapped__(file, read_own(file, KIND))


@lru_cache(maxsize=32)
def _load(file: Path, source: bytes) -> Recipe:
    method = getattr(run_file(file, source, KIND), "METHOD", None)
    refuse_own_imports(file, source, KIND)
    if not isinstance(method, Recipe):
        raise UserError(f"the {KIND} '{file}' must define METHOD = Recipe(...)")
    return method
