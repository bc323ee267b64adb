"""Entry of the `fedflat` command."""

import sys

from fedflat.cli.app import command


def main() -> None:
    """Run the command; invalid input prints one line on stderr and gives exit code 2."""
    sys.exit(command())


if __name__ == "__main__":
    main()
