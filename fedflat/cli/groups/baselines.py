"""The commands `fedflat baselines ...`, which store and verify finished runs."""

import secrets
import time
from pathlib import Path
from typing import Annotated

import typer

from fedflat.bench.host.allocator import keep_freed_memory
from fedflat.bench.host.progress import silent
from fedflat.bench.host.threads import available_cores
from fedflat.cli.batch import resources_used
from fedflat.cli.options import Device, ExperimentNames, Results, Set, StoredBaselines, folder_option, overrides_of

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def baselines(context: typer.Context) -> None:
    """Store finished runs as baselines, verify and list them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def add(
    experiment: ExperimentNames,
    grid: Annotated[str, typer.Option(help="The name under which the runs are stored.", metavar="GRID")],
    set_: Set = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace stored runs of these experiments, and of the same runs.")
    ] = False,
    without_analyses: Annotated[
        bool, typer.Option("--without-analyses", help="Store runs whose analyses are not computed, without analyses.")
    ] = False,
    results: Results = Path("results"),
    stored: StoredBaselines = None,
) -> None:
    """Add all runs of experiments to the baselines of a grid.

    All runs must be finished, and the analyses that the experiment's analyses.yaml names must be computed. Runs of
    other experiments in the grid are kept. Of an experiment that 'fedflat tune' has written, the cells that were
    searched are added, as tuned runs.

    \b
    Examples:
      fedflat baselines add quick_all --grid quick --without-analyses
      fedflat baselines add bench1d results/tuning/bench1d/tuned.yaml --grid bench1d
    """
    from fedflat.analysis.comparison.adding import add as add_runs
    from fedflat.analysis.report.requested import RequestedExperiment

    requests = [RequestedExperiment(name, results, overrides_of(set_)) for name in experiment]
    place = add_runs(requests, grid, stored, analyses=not without_analyses, replace=replace)
    typer.echo(str(place))


@app.command("add-trials")
def add_trials(
    experiment: ExperimentNames,
    grid: Annotated[str, typer.Option(help="The name under which the trials are stored.", metavar="GRID")],
    set_: Set = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace stored trials of these experiments, and of the same cells.")
    ] = False,
    results: Results = Path("results"),
    stored: StoredBaselines = None,
) -> None:
    """Add all trials of experiments to the baselines of a grid.

    `fedflat tune` must have ended in all cells, without early stopping (tuning: {rungs: []}). `fedflat tuning-report`
    shows how the ranking of methods depends on the number of trials.

    \b
    Example:
      fedflat baselines add-trials bench1d_budget --grid bench1d
    """
    from fedflat.analysis.comparison.tuning.trials import add_trials as add_all_trials
    from fedflat.analysis.report.requested import RequestedExperiment

    requests = [RequestedExperiment(name, results, overrides_of(set_)) for name in experiment]
    typer.echo(str(add_all_trials(requests, grid, stored, replace=replace)))


@app.command("add-search")
def add_search(
    grid: Annotated[
        str, typer.Argument(help="The name of an experiment with a search.yaml, or such a file.", metavar="GRID")
    ],
    without_analyses: Annotated[
        bool, typer.Option("--without-analyses", help="Store no analyses, also if some are computed.")
    ] = False,
    results: Results = Path("results"),
    stored: Annotated[
        Path | None, folder_option("The folder of all stored grids. Default: results/baselines.", "--baselines")
    ] = None,
) -> None:
    """Store what a search by a protocol has found so far.

    It takes the place of what is stored of the search: the trials of all searches that have ended, and the runs with
    winning values of methods whose runs are finished; the others are left out. The runs of GRID, of its rows of equal
    compute and of the values of the next tuning seed become grids of their own, such as flat1d, flat1d_k2 and flat1d_x.

    \b
    Example:
      fedflat baselines add-search flat1d
    """
    from fedflat.analysis.comparison.flat.stored import store

    store(grid, results, stored, analyses=not without_analyses, progress=typer.echo)


@app.command()
def show(
    grid: Annotated[
        str | None, typer.Argument(help="The name of a grid. Default: list all grids.", metavar="GRID")
    ] = None,
    stored: StoredBaselines = None,
) -> None:
    """List the grids with stored baselines, or show one grid.

    \b
    Examples:
      fedflat baselines show
      fedflat baselines show quick
    """
    from fedflat.analysis.comparison.overview import grids, overview

    if stored is not None and grid is None:
        raise typer.BadParameter("--baselines needs the name of the grid")
    for line in grids() if grid is None else overview(grid, stored):
        typer.echo(line)


@app.command()
def verify(
    grid: Annotated[str, typer.Argument(help="The name of a grid.", metavar="GRID")],
    sample: Annotated[
        int, typer.Option(help="How many stored runs are drawn and trained again.", min=1, metavar="N")
    ] = 5,
    seed: Annotated[
        int | None, typer.Option(help="The seed of the draw. Default: a new one, which is printed.", min=0, metavar="N")
    ] = None,
    device: Device = "cpu",
    stored: StoredBaselines = None,
) -> None:
    """Train randomly drawn stored runs again, and compare.

    A run is trained from its stored configuration, in a temporary folder; so are all seeds that were trained together
    with it. With the same code, versions of libraries, processor and engine's choice, all stored numbers must have the
    same bits; else accuracies may differ by 3 points and losses by a tenth, or both by five standard deviations over
    the seeds of the cell, and their means over seeds by 1 point and a twentieth, or by what a paired t-test allows.
    Prints one line for each run and mean. The exit code is 1 if one differs.

    \b
    Example:
      fedflat baselines verify quick --sample 2
    """
    started = time.perf_counter()
    keep_freed_memory()
    from fedflat.analysis.comparison.baselines import folder_of, load
    from fedflat.analysis.provenance.stored_runs import (
        DEVIATIONS,
        LEVEL,
        TOLERANCE,
        TOLERANCE_OF_MEAN,
        as_table,
        drawn,
        has_changed,
    )
    from fedflat.analysis.provenance.stored_runs import verify as train_again
    from fedflat.bench.host.torch_device import prepare_device

    baselines = load(grid, stored)
    seed = secrets.randbelow(2**32) if seed is None else seed
    chosen = drawn(baselines, sample, seed)
    typer.echo(f"drawn with --seed {seed}")
    torch_device = prepare_device(device, available_cores(), typer.echo)
    retrained = []
    for number, run in enumerate(chosen, start=1):
        typer.echo(f"run {number} of {len(chosen)}", err=True)
        retrained.extend(train_again(baselines, run, torch_device, silent))
    for line in as_table(retrained):
        typer.echo(line)
    changes = (has_changed(run, stored or folder_of(grid)) for run in chosen)
    for line in dict.fromkeys(filter(None, changes)):
        typer.echo(f"note: {line}")
    typer.echo(
        f"tolerance where bits may differ: {TOLERANCE['accuracy']:g} points, {TOLERANCE['loss']:.0%} of a loss, or "
        f"{DEVIATIONS:g} standard deviations over the seeds of the cell; of means over seeds "
        f"{TOLERANCE_OF_MEAN['accuracy']:g} point, {TOLERANCE_OF_MEAN['loss']:.0%} of a loss, or a paired t-test at "
        f"level {LEVEL:g}"
    )
    counted = [
        f"{sum(one.differs for one in found)} of {len(found)} {what} differ"
        for of_mean, what in ((False, "runs"), (True, "means over seeds"))
        if (found := [one for one in retrained if one.of_mean == of_mean]) or not of_mean
    ]
    typer.echo(f"{', '.join(counted)}; {resources_used(started)}")
    if any(one.differs for one in retrained):
        raise typer.Exit(1)
