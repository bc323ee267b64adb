"""Methods from a user's own Python file: it defines METHOD, a `Recipe`."""

import hashlib
import importlib.util
import sys
from functools import lru_cache
from pathlib import Path

from bench.errors import UserError
from bench.methods.compose import check_legal
from bench.methods.recipe import Recipe


def code_hash(file: Path) -> str:
    """SHA-256 of the file, first 16 hex digits: part of the identity of the method's runs."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise UserError(f"cannot read the method file '{file}': {error.strerror}") from None


def recipe_from_file(file: Path) -> Recipe:
    """The file's METHOD; a `UserError` if the file cannot be read or run, or has none."""
    return _load(file, code_hash(file))


@lru_cache(maxsize=32)
def _load(file: Path, code: str) -> Recipe:
    name = f"fedflat_user_{file.stem}_{code}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"the method file '{file}' is no Python file (its name must end in .py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks annotations up in there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        line = _line_of(error, file)
        raise UserError(f"the method file '{file}' fails{line}: {type(error).__name__}: {error}") from None
    method = getattr(module, "METHOD", None)
    if not isinstance(method, Recipe):
        raise UserError(f"the method file '{file}' must define METHOD = Recipe(...)")
    check_legal(method.parts)
    return method


def _line_of(error: Exception, file: Path) -> str:
    if isinstance(error, SyntaxError):
        return f" in line {error.lineno}"
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f" in line {line}"
