"""The command `fedflat methods`: list and explain the methods."""

from typing import Annotated

import typer


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A method's name, 'swa' (weight averaging), or a method's Python file. Default: list all.",
            metavar="METHOD",
        ),
    ] = None,
) -> None:
    """List the methods, or explain one.

    Shows the equations of a method, its hyper-parameters and its costs.

    \b
    Examples:
      fedflat methods
      fedflat methods fedlesam_s
    """
    from fedflat.cli import method_description

    typer.echo(method_description.overview() if name is None else method_description.describe(name))
