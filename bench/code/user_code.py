"""User-defined Python files: how they are executed, and how their errors are reported in one line."""

import ast
import linecache
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from fedflat.bench.code.module_places import place
from fedflat.bench.code.modules import USERS_MODULE, check_later_imports, checked_imports
from fedflat.bench.code.present_names import compiled, use_present_names
from fedflat.bench.code.trusted_code import require_trusted
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError


class FailingCodeError(UserError):
    """Code of a user's file has raised an exception."""


def check_suffix(file: Path, kind: str) -> None:
    """A `UserError` if this is not a Python file; `kind` names the kind of file in messages, such as "method file"."""
    if file.suffix != ".py":
        raise UserError(f"the {kind} '{file}' is no Python file (its name must end in .py)")


def run_file(file: Path, source: bytes, kind: str, package: str = "") -> ModuleType:
    """Execute the source as a module and return the module; its relative imports start from `package`.

    The executed bytes are exactly the hashed bytes: Python's import could use cached bytecode instead. An
    `UntrustedCodeError` if the source is not trusted.
    """
    check_suffix(file, kind)
    require_trusted(file, source, kind)
    module = ModuleType(f"{USERS_MODULE}{file.stem}_{short_hash(source)}")
    module.__file__ = str(file)
    module.__package__ = package
    check_later_imports()
    sys.modules[module.__name__] = module  # pydantic looks up annotations there
    try:
        with checked_imports():
            exec(compiled(source, file), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise failure(file, kind, error) from None
    return module


class OwnImportError(UserError):
    """A user's file imports another one of its folder, in this line."""

    def __init__(self, file: Path, kind: str, imported: str, line: int) -> None:
        super().__init__(
            f"the {kind} '{file}' imports '{imported}' in line {line}: edits of that file would not be noticed "
            "(allowed: installed packages and FedFlat's; move the code into one file)"
        )
        self.file, self.imported, self.line = file, imported, line


def refuse_own_imports(file: Path, source: bytes, kind: str) -> None:
    """An `OwnImportError` if a file that has been executed imports another one of its folder, anywhere in its code.

    The identity of a run contains the hash of this file only.
    """
    folder = file.parent.resolve()
    for line, name in sorted(imported(ast.parse(source))):
        there = place(name)
        if there is not None and there.is_relative_to(folder):
            raise OwnImportError(file, kind, str(there.relative_to(folder)), line)


def _own_import(error: ImportError, file: Path, line: int) -> str | None:
    """What an import in this line was to import, if it failed because a file of a user is executed alone.

    That is a file of its folder, which is not on Python's path, or any relative import.
    """
    folder = file.parent.resolve()
    own = place((error.name or "").partition(".")[0], folder)
    if own is not None:
        return str(own.relative_to(folder))
    linecache.checkcache(str(file))
    relative = re.match(r"\s*from\s+(\.[\w.]*)\s+import\s+(\w+)", linecache.getline(str(file), line))
    return None if relative is None else relative[1] if relative[1].strip(".") else "".join(relative.groups())


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines of imports, and the packages or modules of the highest level that they name now."""
    use_present_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.lineno, node.module.partition(".")[0]


def failure(file: Path, kind: str, error: BaseException) -> UserError:
    """The one-line error for an exception that was raised while code of this file was running.

    A `FailingCodeError`, or an `OwnImportError` if it was to import another file of its folder.
    """
    line = line_of(error, file)
    if isinstance(error, ImportError) and line is not None and (own := _own_import(error, file, line)) is not None:
        return OwnImportError(file, kind, own, line)
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
