"""The command `fedflat init`: a folder of one's own to begin with."""

from pathlib import Path
from typing import Annotated

import typer

from fedflat.cli.options import folder_path


def init(
    folder: Annotated[
        Path,
        typer.Argument(help="The folder of the project.", parser=folder_path, metavar="FOLDER"),
    ] = Path(),
) -> None:
    """Write a small project into a folder.

    It has an experiment, a method and the pipeline, and needs no clone of FedFlat. Its README.md says what the files
    are for, and has the commands. Files that exist are not overwritten.

    \b
    Examples:
      fedflat init
      fedflat init my_project
    """
    from fedflat.new_project import write_project

    typer.echo("\n".join(map(str, write_project(folder))))
    typer.echo(f"Next{'' if folder == Path() else f', in {folder}'}: snakemake --cores 2")
