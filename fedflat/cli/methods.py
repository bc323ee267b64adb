"""The commands `fedflat methods` and `fedflat schema`: what an experiment's file may contain."""

import json
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


def schema() -> None:
    """Print the JSON schema of experiment files.

    Editors check experiment files with it and complete their keys.

    \b
    Example:
      fedflat schema > experiment.schema.json
    """
    from bench.experiments.experiment import experiment_schema

    typer.echo(json.dumps(experiment_schema(), indent=1))
