"""The commands `fedflat published` and `fedflat audit`: the papers' printed numbers, and what does not fit in them."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from bench.input.errors import UserError

Values = list[str] | None


def published(
    paper: Annotated[Values, typer.Option(help="For example fedgf, or fedsam_caldarola.", metavar="NAME")] = None,
    table: Annotated[Values, typer.Option(help="The table's printed number.", metavar="NAME")] = None,
    dataset: Annotated[Values, typer.Option(help="For example cifar10.", metavar="NAME")] = None,
    method: Annotated[Values, typer.Option(help="For example fedsam, or fedasam+swa.", metavar="NAME")] = None,
    model: Annotated[Values, typer.Option(help="For example lenet.", metavar="NAME")] = None,
    partition: Annotated[Values, typer.Option(help="For example dirichlet.", metavar="NAME")] = None,
    metric: Annotated[Values, typer.Option(help="For example test_accuracy.", metavar="NAME")] = None,
    note: Annotated[Values, typer.Option(help="A kind of note, for example typo_suspected.", metavar="NAME")] = None,
    csv: Annotated[bool, typer.Option("--csv", help="All columns as CSV, notes in full.")] = False,
) -> None:
    """Show the papers' published numbers. Options can be repeated: any of their values fits. Examples:

    fedflat published --paper fedgf --dataset cifar10 --method fedsam

    fedflat published --method fedsam --method fedlesam --metric lambda_max --csv
    """
    from analysis.published.query import as_text, query

    asked = {
        "paper": paper, "table": table, "dataset": dataset, "method": method, "model": model, "partition": partition,
        "metric": metric,
    }  # fmt: skip
    found = query({column: values or [] for column, values in asked.items()}, note or [])
    width = shutil.get_terminal_size(fallback=(120, 24)).columns
    typer.echo(found.to_csv(index=False).rstrip("\n") if csv else as_text(found, width))


def audit(
    out: Annotated[str | None, typer.Option(help="Default: paper_tables/audit.md.", metavar="FILE")] = None,
) -> None:
    """Write the page of what does not fit together in the published numbers. Example:

    fedflat audit
    """
    from analysis.published.audit import page
    from bench.experiments.files import PAPER_TABLES
    from bench.files.atomic import write_text

    if out is not None and not out.strip():
        raise UserError("--out is empty (allowed: the path of a file)")
    place = PAPER_TABLES / "audit.md" if out is None else Path(out)
    write_text(place, page())
    typer.echo(str(place))
