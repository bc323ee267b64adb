"""The command `fedflat schema`: the JSON schema of experiment files."""

import json

import typer


def schema() -> None:
    """Print the JSON schema of experiment files.

    Editors check experiment files with it and complete their keys.

    \b
    Example:
      fedflat schema > experiment.schema.json
    """
    from bench.experiments.experiment import experiment_schema

    typer.echo(json.dumps(experiment_schema(), indent=1))
