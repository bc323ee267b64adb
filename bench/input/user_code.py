"""User-defined Python files: how they are executed, and how their errors are reported in one line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from bench.input.content import short_hash
from bench.input.errors import UserError


class FailingCodeError(UserError):
    """Code of a user's file has raised an exception."""


def check_suffix(file: Path, kind: str) -> None:
    """A `UserError` if this is not a Python file; `kind` names the kind of file in messages, such as "method file"."""
    if file.suffix != ".py":
        raise UserError(f"the {kind} '{file}' is no Python file (its name must end in .py)")


def run_file(file: Path, source: bytes, kind: str, package: str = "") -> ModuleType:
    """Execute the source as a module and return the module; its relative imports start from `package`.

    The executed bytes are exactly the hashed bytes: Python's import could use cached bytecode instead.
    """
    check_suffix(file, kind)
    module = ModuleType(f"fedflat_user_{file.stem}_{short_hash(source)}")
    module.__file__ = str(file)
    module.__package__ = package
    sys.modules[module.__name__] = module  # pydantic looks up annotations there
    try:
        exec(compile(source, str(file), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise failure(file, kind, error) from None
    return module


@contextmanager
def current_folder_importable() -> Iterator[None]:
    """In the block, modules of the current folder can be imported; modules of other folders take precedence."""
    folder = str(Path.cwd())
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def failure(file: Path, kind: str, error: BaseException) -> FailingCodeError:
    """The one-line error for an exception that was raised while code of this file was running."""
    line = line_of(error, file)
    return FailingCodeError(f"the {kind} '{file}' fails{'' if line is None else f' in line {line}'}: {reason(error)}")


def line_of(error: BaseException, file: Path) -> int | None:
    """The last line of this file that was running; None if none was."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(file) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def reason(error: BaseException) -> str:
    """The exception as one line, even if its text has several."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    words = " ".join(text.split())
    return words if isinstance(error, UserError) else f"{type(error).__name__}: {words}".removesuffix(": ")
