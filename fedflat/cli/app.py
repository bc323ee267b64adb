"""The `fedflat` command: collects the subcommands, and reports an error as one line and an exit code.

No module of the command line imports torch at its top: a subcommand imports torch when it runs, after the number of
threads of the numerical libraries has been set.
"""

import logging
import os
import sys
from typing import Any

import typer
import typer.core

from bench.host.threads import ONE_THREAD
from bench.input.errors import UserError
from fedflat.cli import (
    analysing,
    comparing,
    data,
    experiments,
    methods,
    planning,
    published,
    rendering,
    training,
)

# The help shows placeholders such as CELL for arguments, without Python's types such as <list[str]>.
setattr(typer.core.TyperArgument, "display_type_rich", lambda argument, ctx: "")  # noqa: B010 - mypy refuses "="

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Benchmark federated sharpness-aware learning: train, analyse, and render tables and figures.",
)
for subcommand in (
    training.run,
    analysing.analyse, analysing.analyses,
    rendering.table, rendering.figure, rendering.report, rendering.summary,
    comparing.baselines, comparing.compare,
    methods.methods, experiments.schema,
    published.published, published.audit, published.claims,
    planning.plan, planning.index,
):  # fmt: skip
    app.command()(subcommand)
app.add_typer(data.app, name="data")

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""The base class of command-line errors, from Click or from Typer's copy of Click; Typer does not export it."""

INTERRUPTED = 130
"""The exit code after Ctrl-C, as in shells: 128 + SIGINT."""


def command() -> int:
    """Run the subcommand in `sys.argv` and return its exit code; invalid input prints one line and gives code 2."""
    os.environ.update(ONE_THREAD)
    logging.getLogger("fedflat.data").addHandler(logging.StreamHandler())  # decoding takes long: show its progress
    logging.getLogger("fedflat.data").setLevel(logging.INFO)
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="fedflat", standalone_mode=False)
    except UserError as error:
        return _failed(2, str(error))
    except _UsageError as error:
        return _failed(2, _usage(error))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:  # recent versions of Typer return it instead of raising Abort
        return _failed(code, "interrupted")
    return int(code or 0)


def _failed(code: int, message: str) -> int:
    print(f"fedflat: {message}", file=sys.stderr)
    return code


def _usage(error: Any) -> str:
    """Typer's message about an invalid command line, with a hint at the help text."""
    message = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx else "fedflat"
    return f"{message[0].lower()}{message[1:]}; see '{command} --help'"
