"""The command `fedflat schema`: the JSON schema of experiment files."""

import json

import typer


def schema() -> None:
    """Print the JSON schema of experiment files.

    Snakemake and editors check experiment files with it.

    \b
    Example:
      fedflat schema > bench/experiments/experiment.schema.json
    """
    from bench.experiments.experiment import experiment_schema

    typer.echo(json.dumps(experiment_schema(), indent=1))
