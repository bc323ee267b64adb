"""The commands of studies: bad input ends them with one line, as it does `fedflat`."""

import sys
from collections.abc import Callable

from fedflat.bench.input.errors import UserError


def run(main: Callable[[], object]) -> None:
    """Run a command; after a `UserError`, its line is printed, and the exit code is 2."""
    try:
        main()
    except UserError as error:
        print(f"studies: {error}", file=sys.stderr)
        sys.exit(2)
