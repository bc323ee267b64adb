"""The commands `fedflat published` and `claims`: numbers and claims of papers."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from fedflat.bench.input.errors import UserError
from fedflat.cli.options import Results, Set, file_option, overrides_of

Values = list[str] | None

DEFAULT_RESULTS = Path("results")
"""Before anything is trained, this folder is missing."""


def published(
    paper: Annotated[Values, typer.Option(help="For example fedgf or fedsam_caldarola.", metavar="PAPER")] = None,
    table: Annotated[Values, typer.Option(help="The table's number in the paper.", metavar="TABLE")] = None,
    dataset: Annotated[Values, typer.Option(help="For example cifar10.", metavar="DATASET")] = None,
    method: Annotated[Values, typer.Option(help="For example fedsam or fedasam+swa.", metavar="METHOD")] = None,
    model: Annotated[Values, typer.Option(help="For example lenet.", metavar="MODEL")] = None,
    partition: Annotated[Values, typer.Option(help="For example dirichlet.", metavar="PARTITION")] = None,
    metric: Annotated[Values, typer.Option(help="For example test_accuracy.", metavar="METRIC")] = None,
    note: Annotated[Values, typer.Option(help="The kind of note, for example typo_suspected.", metavar="NOTE")] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV with all columns and the full notes.")] = False,
) -> None:
    """Show the numbers that the papers print.

    Shows the numbers that match all given options. A repeated option matches any of its values.

    \b
    Examples:
      fedflat published --paper fedgf --table 1
      fedflat published --paper fedgf --dataset cifar10 --method fedsam
      fedflat published --method fedsam --method fedlesam --metric lambda_max --csv
    """
    from fedflat.analysis.published.query import as_text, query

    wanted = {
        "paper": paper, "table": table, "dataset": dataset, "method": method, "model": model, "partition": partition,
        "metric": metric,
    }  # fmt: skip
    found = query({column: values or [] for column, values in wanted.items()}, note or [])
    width = shutil.get_terminal_size(fallback=(120, 24)).columns
    typer.echo(found.to_csv(index=False).rstrip("\n") if csv else as_text(found, width))


def claims(
    experiment: Annotated[
        str | None,
        typer.Argument(
            help="A paper, such as fedgf, or the YAML file of an experiment that extends a paper's. Default: a summary "
            "of all papers.",
            metavar="PAPER|FILE",
            show_default=False,
        ),
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="paper or smoke: the scale of the runs. Default: paper.", metavar="SCALE")
    ] = None,
    set_: Set = None,
    results: Results = DEFAULT_RESULTS,
    out: Annotated[Path | None, file_option("Write a Markdown page instead of printing.")] = None,
) -> None:
    """Decide the claims of a paper.

    Shows for each claim whether the paper's printed numbers confirm it, and whether finished runs do. Runs are of one
    kind: at true scale, at smoke scale, with other settings, or on other data. The Snakemake target PAPER_claims trains
    and analyses what the claims need, and writes the page.

    \b
    Examples:
      fedflat claims fedgf
      fedflat claims fedgf --scale smoke
    """
    from fedflat.analysis.claims.evidence import Printed, RunEvidence
    from fedflat.analysis.claims.page import judged, page, summary, text
    from fedflat.analysis.claims.schema import papers_with_claims
    from fedflat.analysis.report.requested import RequestedExperiment
    from fedflat.bench.files.atomic import write_text

    if results != DEFAULT_RESULTS and not results.is_dir():
        raise UserError(f"--results: there is no folder '{results}'")
    overrides = overrides_of(set_)
    if scale is not None:
        if "scale" in overrides:
            raise UserError("give the scale with either --scale or --set scale, not both")
        overrides["scale"] = scale
    if experiment is None:
        if out is not None:
            raise UserError("--out needs a paper or a file")
        for paper in papers_with_claims():
            runs = RunEvidence(RequestedExperiment(paper, results, overrides))
            typer.echo(summary(judged(Printed(paper), runs), runs))
        return
    runs = RunEvidence(RequestedExperiment(experiment, results, overrides))
    rows = judged(Printed(runs.requested.paper), runs)
    if out is None:
        typer.echo(text(rows, runs))
    else:
        write_text(out, page(rows, runs))
        typer.echo(str(out))
