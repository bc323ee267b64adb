"""Errors that a user or the machine can cause, each as one line; all others are mistakes of FedFlat."""

import errno
import traceback

from fedflat.bench.input.errors import UserError, one_line

EXPLAINED = (UserError, MemoryError, OSError, UnicodeEncodeError, SystemExit)
"""The exceptions that have one line."""


def explained(error: BaseException) -> str:
    """The error as one line; the traceback of an exception that is not in `EXPLAINED`."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, MemoryError) or lacks_memory(error):
        return one_line(f"the memory does not suffice: {error}".removesuffix(": "))
    if isinstance(error, OSError):
        place = "input or output fails" if error.filename is None else f"'{_path(error.filename)}'"
        return one_line(f"{place}: {error.strerror or error}")
    if isinstance(error, UnicodeEncodeError):
        return one_line(
            f"'{error.object}' cannot be written in {error.encoding}, the encoding of this locale (allowed: a locale "
            "with UTF-8, such as LC_ALL=C.UTF-8)"
        )
    if isinstance(error, SystemExit):
        *_, last = traceback.extract_tb(error.__traceback__)
        return one_line(f"line {last.lineno} of '{last.filename}' ends the command: sys.exit({error.code!r})")
    return "".join(traceback.format_exception(error))


def lacks_memory(error: BaseException) -> bool:
    """Whether torch could not allocate memory: it raises a RuntimeError, on a GPU one of a class of its own."""
    text = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)


def is_closed_pipe(error: BaseException | None) -> bool:
    """Whether the reader of the output has ended, such as `head`, and nobody needs a message."""
    if isinstance(error, SystemExit):
        return is_closed_pipe(error.__context__)  # Typer ends the command
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _path(name: object) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
