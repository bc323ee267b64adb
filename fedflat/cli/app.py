"""The `fedflat` command: collects the subcommands, and reports an error as one line and an exit code.

No module of the command line imports torch at its top: a subcommand imports torch when it runs, after the number of
threads of the numerical libraries has been set.
"""

import io
import logging
import os
import sys
from contextlib import suppress
from functools import cache
from typing import Any

import typer
import typer.core
from typer.main import get_command

from fedflat.bench.host.threads import ONE_THREAD
from fedflat.bench.input.errors import one_line
from fedflat.cli import (
    analysing,
    comparing,
    methods,
    planning,
    project,
    provenance,
    published,
    rendering,
    stored,
    training,
    tuning,
)
from fedflat.cli.groups import baselines, data
from fedflat.exit_codes import CLOSED_PIPE, INTERRUPTED
from fedflat.explained import EXPLAINED, explained, is_closed_pipe, lacks_memory

# The help shows placeholders such as CELL for arguments, without Python's types such as <list[str]>.
setattr(typer.core.TyperArgument, "display_type_rich", lambda argument, ctx: "")  # noqa: B010 - mypy refuses "="

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.callback()(project.options)
for subcommand in (
    project.init,
    training.run, stored.runs, tuning.tune, tuning.search, tuning.tuning_report,
    analysing.analyse, analysing.analyses,
    rendering.table, rendering.figure, rendering.report, rendering.explore, rendering.summary, rendering.study,
    comparing.compare,
    provenance.verify, provenance.export, provenance.take_over,
    methods.methods, methods.new_method, methods.check_method, methods.schema,
    published.published, published.claims,
    planning.plan,
    project.versions,
):  # fmt: skip
    app.command()(subcommand)
app.command("import")(provenance.import_)  # a word that Python reserves
app.add_typer(data.app, name="data")
app.add_typer(data.weights_app, name="weights")
app.add_typer(baselines.app, name="baselines")

CONTINUING = {"run", "tune", "search", "analyse", "take-over"}
"""Commands that continue after an interruption."""

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""The base class of command-line errors, from Click or from Typer's copy of Click; Typer does not export it."""


@cache
def built() -> Any:
    """The command line with all subcommands: Typer takes a few hundredths of a second to build it."""
    return get_command(app)


def command() -> int:
    """Run the subcommand in `sys.argv` and return its exit code.

    Whatever a user or the machine can cause prints one line and gives code 2. Another exception is a mistake of FedFlat
    and is raised.
    """
    _prepare()
    try:
        code = built()(sys.argv[1:] or ["--help"], prog_name="fedflat", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except _UsageError as error:
        return _failed(2, _usage(error))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except EXPLAINED as error:
        return CLOSED_PIPE if is_closed_pipe(error) else _failed(2, explained(error))
    except RuntimeError as error:
        if not lacks_memory(error):
            raise
        return _failed(2, explained(error))
    finally:
        _give_up_output()
    if code == INTERRUPTED:  # recent versions of Typer return it instead of raising Abort
        return _failed(
            code, "interrupted" + "; the same command continues" * (not CONTINUING.isdisjoint(sys.argv[1:2]))
        )
    return int(code or 0)


def _prepare() -> None:
    """Set what must be set before libraries are imported, and show the progress of decoding, which takes long."""
    os.environ.update(ONE_THREAD)
    if not os.environ.get("HOME"):
        os.environ.pop("HOME", None)  # the home folder is then that of the user, and not the root folder
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # Greek letters where the locale has none
    for name in ("fedflat.code", "fedflat.data", "fedflat.files", "fedflat.weights"):
        logger = logging.getLogger(name)
        logger.handlers = [logging.StreamHandler()]
        logger.setLevel(logging.INFO)


def _failed(code: int, message: str) -> int:
    with suppress(OSError):
        if sys.stderr is not None:
            print(f"fedflat: {message}", file=sys.stderr, flush=True)
    return code


def _give_up_output() -> None:
    """Leave nothing for Python to write at its end where it cannot be written: this would end in a traceback."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _usage(error: Any) -> str:
    """Typer's message about an invalid command line, with a hint at the help text."""
    message = one_line(" ".join(error.format_message().split()).rstrip("."))
    command = error.ctx.command_path if error.ctx else "fedflat"
    return f"{message[0].lower()}{message[1:]}; see '{command} --help'"
