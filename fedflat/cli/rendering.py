"""The commands that show results: `fedflat table`, `figure`, `report`, `explore`, `summary` and `study`."""

from pathlib import Path
from typing import Annotated

import typer

from fedflat.cli.options import (
    ExperimentName,
    Results,
    Set,
    StoredBaselines,
    StoredOrRuns,
    file_option,
    folder_option,
    overrides_of,
)


def table(
    experiment: ExperimentName,
    name: Annotated[
        str,
        typer.Argument(
            help="The name of a table: a file in the experiment's folder tables/, without .yaml. Without a name, the "
            "command lists them.",
            metavar="TABLE",
            show_default=False,
        ),
    ] = "",
    set_: Set = None,
    results: Results = Path("results"),
) -> None:
    """Render one table of an experiment.

    Writes Markdown, LaTeX, CSV and HTML. The table shows the finished runs and marks cells without results; Snakemake
    trains the missing runs first: snakemake --cores 2 quick_table_accuracy

    \b
    Example:
      fedflat table quick accuracy
    """
    from fedflat.analysis.report.requested import RequestedExperiment
    from fedflat.analysis.report.tables import Tables

    for file in Tables(RequestedExperiment(experiment, results, overrides_of(set_))).render(name):
        typer.echo(str(file))


def figure(
    experiment: ExperimentName,
    name: Annotated[
        str,
        typer.Argument(
            help="The name of a figure: a file in the experiment's folder figures/, without .yaml. Without a name, the "
            "command lists them.",
            metavar="FIGURE",
            show_default=False,
        ),
    ] = "",
    set_: Set = None,
    results: Results = Path("results"),
) -> None:
    """Draw one figure of an experiment.

    Writes PNG and PDF, and the caption as Markdown. The figure shows the finished runs.

    \b
    Example:
      fedflat figure quick convergence
    """
    from fedflat.analysis.report.figures import Figures
    from fedflat.analysis.report.requested import RequestedExperiment

    for file in Figures(RequestedExperiment(experiment, results, overrides_of(set_))).render(name):
        typer.echo(str(file))


def report(experiment: ExperimentName, set_: Set = None, results: Results = Path("results")) -> None:
    """Write a page with all tables and figures.

    The HTML page shows the finished runs, and the figures that are already drawn.

    \b
    Example:
      fedflat report quick
    """
    from fedflat.analysis.report.report import render_page
    from fedflat.analysis.report.requested import RequestedExperiment

    typer.echo(str(render_page(RequestedExperiment(experiment, results, overrides_of(set_)))))


def explore(
    experiment: ExperimentName,
    out: Annotated[
        Path | None, file_option("The HTML file to write. Default: explore.html next to the report.")
    ] = None,
    link_report: Annotated[
        bool, typer.Option("--link-report", help="Link the report, also if it is still to be written.")
    ] = False,
    stored: Annotated[
        bool, typer.Option("--stored", help="Show the stored baselines of a grid instead of finished runs.")
    ] = False,
    set_: Set = None,
    results: Results = Path("results"),
    baselines: StoredBaselines = None,
) -> None:
    """Write an interactive page with all finished runs.

    One HTML file that needs no network: a leaderboard to sort and filter, curves, accuracy at a chosen budget, cost,
    flatness, loss surfaces, and the settings, command and provenance of each number. Flatness and surfaces are shown
    where they have been analysed.

    \b
    Example:
      fedflat explore quick
      fedflat explore bench1d --stored
    """
    from fedflat.analysis.comparison.explore import render_explorer, render_stored
    from fedflat.analysis.report.requested import RequestedExperiment

    if stored:
        if set_ or link_report:
            raise typer.BadParameter("--stored excludes --set and --link-report: stored runs have no report")
        typer.echo(str(render_stored(experiment, results, out, baselines)))
        return
    if baselines is not None:
        raise typer.BadParameter("--baselines needs --stored: finished runs are in the folder of --results")
    requested = RequestedExperiment(experiment, results, overrides_of(set_))
    typer.echo(str(render_explorer(requested, out, links_report=link_report)))


def summary(experiment: ExperimentName, set_: Set = None, results: Results = Path("results")) -> None:
    """Summarise an experiment in a few lines.

    Prints the number of finished runs, the best method, and the path of the report.

    \b
    Example:
      fedflat summary quick
    """
    from fedflat.analysis.report.headline import summary as summary_of
    from fedflat.analysis.report.requested import RequestedExperiment

    typer.echo(summary_of(RequestedExperiment(experiment, results, overrides_of(set_))))


def study(
    grid: StoredOrRuns,
    out: Annotated[
        Path | None,
        folder_option(
            "The folder to write: study.md, study.tex, tables and figures. Default: RESULTS/reports/GRID/study."
        ),
    ] = None,
    runs: Annotated[
        bool, typer.Option("--runs", help="Read finished runs and their analyses instead of stored baselines.")
    ] = False,
    fitted: Annotated[
        float,
        typer.Option(
            help="Mean training accuracy in percent from which a method counts as fitted. All numbers are also "
            "computed for fitted methods alone.",
            metavar="PERCENT",
        ),
    ] = 90.0,
    set_: Set = None,
    results: Results = Path("results"),
    stored: StoredBaselines = None,
    width: Annotated[
        float, typer.Option(help="The width of the figures, as printed.", min=2, max=40, metavar="INCHES")
    ] = 6.75,
) -> None:
    """Does flatness predict accuracy? Write tables and figures.

    Correlates flatness measures with test accuracy and with the generalisation gap: rank correlations between and
    within methods with intervals, and the coefficients of Jiang et al. (2020).

    \b
    Examples:
      fedflat study bench1d
      fedflat study quick --runs --out study
    """
    from fedflat.analysis.comparison.study.source import StudySource
    from fedflat.analysis.comparison.study.study import Study
    from fedflat.analysis.comparison.study.words import words
    from fedflat.analysis.comparison.study.write import write

    source = StudySource(grid, results, overrides_of(set_), from_runs=runs, baselines=stored)
    made = Study.of(source.runs(), source.name, fitted)
    for line in (*words(made), str(write(made, out or source.folder, width))):
        typer.echo(line)
