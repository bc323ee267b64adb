"""The commands `fedflat init`, a folder of one's own to begin with, and `versions`, and the option --version."""

from pathlib import Path
from typing import Annotated

import typer

from fedflat.cli.options import folder_path


def init(
    folder: Annotated[
        Path, typer.Argument(help="The folder of the project.", parser=folder_path, metavar="FOLDER")
    ] = Path(),
) -> None:
    """Write a small project into a folder.

    It has an experiment, a method and the pipeline, and needs no clone of FedFlat. Its README.md says what the files
    are for, and has the commands. Nothing is overwritten: a README.md that is there stays, and if another one of the
    files is there, none is written.

    \b
    Examples:
      fedflat init
      fedflat init my_project
    """
    from fedflat.new_project import README, write_project

    written = write_project(folder)
    typer.echo("\n".join(map(str, written)))
    if folder / README not in written:
        typer.echo(f"{folder / README} is there already, and stays")
    typer.echo(f"Next{'' if folder == Path() else f', in {folder}'}: snakemake --cores 2")


def versions() -> None:
    """Print versions, machine and environment.

    Add them to a report of a problem; read them first, because folders may contain your name.

    \b
    Example:
      fedflat versions
    """
    from fedflat.versions import versions as facts

    typer.echo("\n".join(facts()))


def _print_version(is_given: bool) -> None:
    if is_given:
        from fedflat.bench.training.code_version import code_in_words

        typer.echo(code_in_words())
        raise typer.Exit


def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and a clone's commit."
        ),
    ] = False,
) -> None:
    """Benchmark federated sharpness-aware learning: train, analyse, and render tables and figures."""
