"""`python -m studies.compositions ...`: searches compositions, and compares them with published methods."""

from pathlib import Path
from typing import Annotated

import typer

from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.cli.options import (
    ExperimentName,
    Results,
    Set,
    experiment_argument,
    file_option,
    folder_option,
    overrides_of,
)
from studies.command import run
from studies.compositions.evaluation import CompositionResults, candidates
from studies.compositions.files import write_best, write_screening
from studies.compositions.searches import SCREENED, load
from studies.compositions.searches import add as add_search
from studies.compositions.words import answer
from studies.compositions.write import write

app = typer.Typer(rich_markup_mode=None)

Grid = Annotated[str, experiment_argument("GRID")]
Stored = Annotated[
    Path | None, folder_option("The folder of the stored searches. Default: results/compositions/GRID.", "--stored")
]
Out = Annotated[Path, file_option("The YAML file to write.")]


@app.callback(invoke_without_command=True)
def compositions(context: typer.Context) -> None:
    """Search compositions, and compare them with published methods.

    A composition is a triple of perturbation, correction and server.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def screening(
    grid: Grid,
    setting: Annotated[
        str,
        typer.Option(help="The only setting, such as dirichlet-0.1/4-of-20.", metavar="PARTITION/PARTICIPATION"),
    ],
    out: Out,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of a trial. Default: half of the grid's.", min=1, metavar="N")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials of each triple. Default: 4.", min=1, metavar="N")] = None,
) -> None:
    """Write the experiment of all legal triples.

    They are tuned in one setting, with 'fedflat tune'.

    Triples that are methods of the grid keep their labels and values. The others are called by their components; their
    values are those of the grid's method that has the component and the fewest others.

    \b
    Example:
      python -m studies.compositions screening quick --setting dirichlet-0.1/4-of-20 --out mine/screening.yaml
    """

    typer.echo(f"{write_screening(grid, setting, rounds, trials, out)} triples in {out}")


@app.command()
def add(
    experiment: ExperimentName,
    grid: Annotated[str, typer.Option(help="The name of the grid.", metavar="GRID")],
    set_: Set = None,
    results: Results = Path("results"),
    stored: Stored = None,
) -> None:
    """Store the best trials of a search that has ended.

    The searches are those of GRID_screening, of GRID_composed, and of GRID itself.

    \b
    Examples:
      python -m studies.compositions add mine/screening.yaml --grid quick
      python -m studies.compositions add quick --grid quick
    """

    typer.echo(str(add_search(RequestedExperiment(experiment, results, overrides_of(set_)), grid, stored)))


@app.command()
def best(
    grid: Grid,
    out: Out,
    count: Annotated[int, typer.Option(help="How many triples.", min=1, metavar="N")] = 8,
    stored: Stored = None,
) -> None:
    """Write the experiment of the best unpublished triples.

    They are the best of the stored screening, and are tuned in all settings of the grid.

    \b
    Example:
      python -m studies.compositions best quick --count 6 --out mine/composed.yaml
    """

    chosen = candidates(load(load_experiment(grid, {}).name, SCREENED, stored), count)
    write_best(grid, chosen, out)
    for triple in chosen:
        typer.echo(triple.label)
    typer.echo(f"written to {out}")


@app.command()
def report(
    grid: Annotated[str, typer.Argument(help="The name of a grid with a stored screening.", metavar="GRID")],
    out: Annotated[
        Path | None,
        folder_option(
            "The folder to write: compositions.md, compositions.tex, tables and the figure. Default: "
            "RESULTS/reports/GRID/compositions."
        ),
    ] = None,
    results: Results = Path("results"),
    stored: Stored = None,
    baselines: Annotated[
        Path | None, folder_option("The folder of the baselines of all grids. Default: results/baselines.")
    ] = None,
    width: Annotated[float, typer.Option(help="The width of the figure, as printed.", min=2, metavar="INCHES")] = 6.75,
) -> None:
    """Does a composition beat the published methods?

    Writes the answer as far as results are stored.

    The best composition and the best published method are chosen by their validation accuracy. Tuned runs are read from
    the baselines of GRID and of GRID_composed.

    \b
    Example:
      python -m studies.compositions report bench1d
    """

    evaluation = CompositionResults.of(grid, stored, baselines)
    page = write(evaluation, out or ResultPaths(results).report(grid).folder / "compositions", width)
    for sentence in answer(evaluation):
        typer.echo(sentence)
    typer.echo(str(page))


if __name__ == "__main__":
    run(app)
