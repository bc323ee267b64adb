"""Methods from a user's own Python file: it defines METHOD, a `Recipe`."""

import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from bench.content import hash_of, read_own
from bench.errors import UserError
from bench.methods.compose import check_legal
from bench.methods.recipe import Recipe

KIND = "method file"


def recipe_from_file(file: Path) -> Recipe:
    """The file's METHOD; a `UserError` if the file cannot be read or run, or has none."""
    return _load(file, read_own(file, KIND))


@lru_cache(maxsize=32)
def _load(file: Path, source: bytes) -> Recipe:
    """What is run is what was hashed: Python's own import would take bytecode of the file's time stamp instead."""
    if file.suffix != ".py":
        raise UserError(f"the method file '{file}' is no Python file (its name must end in .py)")
    module = ModuleType(f"fedflat_user_{file.stem}_{hash_of(source)}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # pydantic looks annotations up in there
    try:
        exec(compile(source, str(file), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise UserError(f"the method file '{file}' fails{_line_of(error, file)}: {_reason(error)}") from None
    method = getattr(module, "METHOD", None)
    if not isinstance(method, Recipe):
        raise UserError(f"the method file '{file}' must define METHOD = Recipe(...)")
    try:
        check_legal(method.parts)
    except UserError as error:
        raise UserError(f"the method file '{file}': {error}") from None
    return method


def failure(file: Path, error: Exception) -> UserError:
    """An exception that came up while a method of this file was at work, as one line."""
    return UserError(f"the method file '{file}' fails{_line_of(error, file)}: {_reason(error)}")


def _line_of(error: BaseException, file: Path) -> str:
    """The last line of the file itself that was at work."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(file) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f" in line {line}"


def _reason(error: BaseException) -> str:
    """One line, whatever the exception's own text."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    words = " ".join(text.split())
    return words if isinstance(error, UserError) else f"{type(error).__name__}: {words}".removesuffix(": ")
