"""The `fedflat published` command: the papers' printed numbers, by paper, table, data set, method and the like."""

import shutil
from typing import Annotated

import typer

Values = list[str] | None


def published(
    paper: Annotated[Values, typer.Option(help="fedgf, fedlesam, fedsam_caldarola, fedsam_qu or fedtoga.")] = None,
    table: Annotated[Values, typer.Option(help="The table's printed number.")] = None,
    dataset: Annotated[Values, typer.Option(help="For example cifar10.")] = None,
    method: Annotated[Values, typer.Option(help="For example fedsam, or fedasam+swa.")] = None,
    model: Annotated[Values, typer.Option(help="For example lenet.")] = None,
    partition: Annotated[Values, typer.Option(help="For example dirichlet.")] = None,
    metric: Annotated[Values, typer.Option(help="For example test_accuracy.")] = None,
    note: Annotated[Values, typer.Option(help="A kind of note, for example typo_suspected.")] = None,
    csv: Annotated[bool, typer.Option("--csv", help="All columns as CSV, notes in full.")] = False,
) -> None:
    """Show the papers' published numbers. Options can be repeated: any of their values fits. Examples:

    fedflat published --paper fedgf --dataset cifar10 --method fedsam

    fedflat published --method fedsam --method fedlesam --metric lambda_max --csv
    """
    from analysis.published_query import aligned, query

    asked = {
        "paper": paper, "table": table, "dataset": dataset, "method": method, "model": model, "partition": partition,
        "metric": metric,
    }  # fmt: skip
    found = query({column: values or [] for column, values in asked.items()}, note or [])
    width = shutil.get_terminal_size(fallback=(120, 24)).columns
    typer.echo(found.to_csv(index=False).rstrip("\n") if csv else aligned(found, width))
