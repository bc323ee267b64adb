"""The commands `fedflat baselines`, which stores finished runs, and `fedflat compare`, which uses them."""

from pathlib import Path
from typing import Annotated

import typer

from fedflat.cli.options import ExperimentName, Results, Set, file_path, overrides_of


def baselines(
    experiment: ExperimentName,
    grid: Annotated[str, typer.Option(help="The name under which the baselines are stored.", metavar="GRID")],
    set_: Set = None,
    results: Results = Path("results"),
    out: Annotated[
        Path | None,
        typer.Option(
            help="The CSV file to write. Default: results/baselines/GRID.csv.", parser=file_path, metavar="FILE"
        ),
    ] = None,
) -> None:
    """Store an experiment's final metrics as baselines.

    All runs of the experiment must be finished. 'fedflat compare' compares other methods with these baselines.

    \b
    Example:
      fedflat baselines quick_all --grid quick
    """
    from analysis.comparison.baselines import store
    from analysis.report.requested import RequestedExperiment

    typer.echo(str(store(RequestedExperiment(experiment, results, overrides_of(set_)), grid, out)))


def compare(
    method: Annotated[str, typer.Argument(help="The label of a method whose runs are finished.", metavar="METHOD")],
    grid: Annotated[str, typer.Option(help="The name of the stored baselines to compare with.", metavar="GRID")],
    experiment: Annotated[
        str | None,
        typer.Option(
            help="The experiment of the runs: a name or a YAML file. Default: the experiment named GRID.",
            metavar="EXPERIMENT",
        ),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="test_accuracy, test_loss, train_loss or train_accuracy.", metavar="METRIC")
    ] = "test_accuracy",
    by_setting: Annotated[bool, typer.Option("--by-setting", help="Also show one table for each setting.")] = False,
    set_: Set = None,
    results: Results = Path("results"),
    stored: Annotated[
        Path | None,
        typer.Option(
            "--baselines",
            help="The file of the baselines. Default: results/baselines/GRID.csv.",
            parser=file_path,
            metavar="FILE",
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="Also write the comparison to this tidy CSV file.", parser=file_path, metavar="FILE"),
    ] = None,
) -> None:
    """Compare a method with stored baselines.

    Each finished run of the method is compared with the stored runs of the same setting and seed. A run is found by its
    configuration, in whichever experiment of the results it was trained.

    \b
    Examples:
      fedflat compare fedsam --grid quick
      fedflat compare my_method --grid quick --experiment mine/experiments.yaml --by-setting --csv mine.csv
    """
    from analysis.comparison.compare import compare as compare_with_stored
    from analysis.comparison.text import as_text
    from bench.files.csv_json import write_csv

    comparison = compare_with_stored(
        method, grid, results, experiment=experiment, overrides=overrides_of(set_), metric=metric, baselines=stored
    )
    if csv is not None:
        write_csv(csv, comparison.csv(by_setting))
    typer.echo(as_text(comparison, by_setting))
