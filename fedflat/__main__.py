"""Entry of the `fedflat` command."""

import os
import signal
import sys

from fedflat.exit_codes import INTERRUPTED


def main() -> None:
    """Run the command; invalid input prints one line on stderr and gives exit code 2."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # background jobs ignore Ctrl-C
    if is_default:
        signal.signal(signal.SIGINT, _quit)
    from fedflat.cli.app import command  # noqa: PLC0415 - Ctrl-C during this import is answered in one line, too

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = command()
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to do
    sys.exit(code)


def _quit(*_: object) -> None:
    """End at once: nothing is written yet, and an import could lose an exception."""
    os.write(2, b"fedflat: interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
