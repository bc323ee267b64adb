"""The commands about methods, and `fedflat schema`: what an experiment's file may contain."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedflat.cli.options import Assignment, file_path, overrides_of, set_option


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A method's name, 'swa' (weight averaging), a method's Python file, or a method of an experiment, "
            "EXPERIMENT:LABEL. Default: list all.",
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
      fedflat methods mine/experiments.yaml:combined
    """
    from fedflat import method_description as description

    typer.echo(description.overview() if name is None else description.describe(name))


def new_method(
    path: Annotated[
        Path,
        typer.Argument(
            help="The method's name, or a path that ends in it, such as mine/my_method.",
            parser=file_path,
            metavar="NAME",
        ),
    ],
) -> None:
    """Write a file with which a new method begins.

    The file NAME.py is a method that trains as it is, with comments on what to change. A file that exists is not
    overwritten.

    \b
    Example:
      fedflat new-method mine/two_step
    """
    from fedflat.conformance.template import write_template

    file = write_template(path)
    typer.echo(
        f"{file} is a method that trains as it is. Edit it, then:\n"
        f"  fedflat check-method {file}\n"
        f"  fedflat methods {file}\n"
        f"  snakemake --cores 2 compare --config method={file} grid=bench1d\n"
        "In the YAML file of an experiment in the same folder, it is an entry of methods:\n"
        f"  {file.stem}: {{file: {file.name}, hyperparameters: {{rho: 0.1}}}}"
    )


def check_method(
    name: Annotated[
        list[str],
        typer.Argument(
            help="A method's Python file, a name of the catalog, or a method of an experiment, EXPERIMENT:LABEL, with "
            "its hyper-parameters. Several are allowed.",
            metavar="METHOD",
        ),
    ],
    assignments: Annotated[
        list[Assignment] | None,
        set_option("a hyper-parameter, for example rho=0.05; default: its value in the experiment, or its example"),
    ] = None,
) -> None:
    """Check that a method does what FedFlat expects of it.

    Trains the method for a few seconds on a small federation, and checks the hooks' results, edits in place, NaN,
    signs, declared lengths, neutral values and costs, hidden state, random numbers, the order of clients, resuming, and
    training in a cohort. Prints one line for each check and one for each finding: its place, what was expected, what
    was seen, and how to mend it. The exit code is 2 if there are findings, else 0.

    \b
    Examples:
      fedflat check-method mine/two_step.py
      fedflat check-method mine/two_step.py --set rho=0.05
      fedflat check-method fedsam scaffold
      fedflat check-method mine/experiments.yaml:combined
    """
    import torch

    from fedflat.conformance.suite import check_method, require

    torch.set_num_threads(1)
    values = overrides_of(assignments)
    reports = []
    for one in name:
        reports.append(check_method(one, values))
        typer.echo("\n".join(reports[-1].lines()))
    require(reports)


def schema(
    search: Annotated[bool, typer.Option("--search", help="That of search.yaml, the protocol of a search.")] = False,
) -> None:
    """Print the JSON schema of experiment files.

    Editors check experiment files with it and complete their keys.

    \b
    Examples:
      fedflat schema > experiment.schema.json
      fedflat schema --search > search.schema.json
    """
    from fedflat.bench.experiments.experiment import experiment_schema
    from fedflat.bench.tuning.protocol.schema import protocol_schema

    typer.echo(json.dumps(protocol_schema() if search else experiment_schema(), indent=1))
