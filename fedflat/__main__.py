"""Entry of the `fedflat` command. It is quick to import, so that a warm process can take over before anything else."""

import sys

from fedflat.warm import hand_over


def main() -> None:
    """Run the command in the warm process if there is one, else in this one."""
    code = hand_over()
    if code is None:
        from fedflat.cli.app import command  # noqa: PLC0415

        code = command()
    sys.exit(code)


if __name__ == "__main__":
    main()
