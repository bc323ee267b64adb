"""The commands of studies: bad input, or a file that cannot be used, ends them with one line, as it does `fedflat`."""

import sys
from collections.abc import Callable

from fedflat.bench.input.errors import UserError
from fedflat.explained import explained


def argument(name: str, command: str) -> str:
    """The only argument of a command; a `UserError` if it is missing, or if there are others."""
    if len(sys.argv) != 2:
        raise UserError(f"{len(sys.argv) - 1} arguments (allowed: one, as in python -m {command} {name})")
    return sys.argv[1]


def run(main: Callable[[], object]) -> None:
    """Run a command; after such an error, the line is printed, and the exit code is 2."""
    try:
        main()
    except (UserError, OSError) as error:
        print(f"studies: {explained(error)}", file=sys.stderr)
        sys.exit(2)
