"""The commands that show results: `fedflat table`, `figure`, `report` and `summary`."""

from pathlib import Path
from typing import Annotated

import typer

from fedflat.cli.options import ExperimentName, Results, Set, overrides_of


def table(
    experiment: ExperimentName,
    name: Annotated[
        str, typer.Argument(help="The name of a table: a file in the experiment's folder tables/, without .yaml.")
    ],
    set_: Set = None,
    results: Results = Path("results"),
) -> None:
    """Render one table from the finished runs, as Markdown, LaTeX, CSV and HTML. Example:

    fedflat table quick accuracy

    Cells without results are marked in the table. To train them first: snakemake --cores 2 quick_table_accuracy
    """
    from analysis.report.report import Report

    for file in Report(experiment, results, overrides_of(set_)).render_table(name):
        typer.echo(str(file))


def figure(
    experiment: ExperimentName,
    name: Annotated[
        str, typer.Argument(help="The name of a figure: a file in the experiment's folder figures/, without .yaml.")
    ],
    set_: Set = None,
    results: Results = Path("results"),
) -> None:
    """Draw one figure from the finished runs, as PNG and PDF, with its caption as Markdown. Example:

    fedflat figure quick convergence
    """
    from analysis.report.report import Report

    for file in Report(experiment, results, overrides_of(set_)).render_figure(name):
        typer.echo(str(file))


def report(experiment: ExperimentName, set_: Set = None, results: Results = Path("results")) -> None:
    """Write one HTML page with all tables and figures of an experiment. Example:

    fedflat report quick
    """
    from analysis.report.report import Report

    typer.echo(str(Report(experiment, results, overrides_of(set_)).render_page()))


def summary(experiment: ExperimentName, set_: Set = None, results: Results = Path("results")) -> None:
    """Summarise an experiment in a few lines: finished runs, the best method, and the report's path. Example:

    fedflat summary quick
    """
    from analysis.report.report import Report

    typer.echo(Report(experiment, results, overrides_of(set_)).summary())
