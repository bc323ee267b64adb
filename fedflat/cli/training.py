"""The command `fedflat run`: train cells of an experiment."""

import time
from pathlib import Path
from typing import Annotated

import typer

from fedflat.bench.host.allocator import keep_freed_memory
from fedflat.bench.host.threads import available_cores
from fedflat.bench.input.errors import UserError
from fedflat.cli.batch import Attempts, resources_used
from fedflat.cli.options import Device, ExperimentName, Results, Set, Threads, folder_option, overrides_of


def run(
    experiment: ExperimentName,
    cell: Annotated[
        list[str],
        typer.Argument(
            help="The path of a cell, DATASET/PARTITION/PARTICIPATION/METHOD, for example "
            "digits/dirichlet-0.1/4-of-20/fedsam. Several cells are trained by one process.",
            metavar="CELL",
        ),
    ],
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Train only this seed. Can be repeated. Default: all seeds of the experiment.", metavar="N"),
    ] = None,
    set_: Set = None,
    out: Annotated[
        Path | None,
        folder_option(
            "The folder to write to; allowed for a single cell. Default: RESULTS/runs/EXPERIMENT/CELL; "
            "with --seed or --set: RESULTS/runs/custom/EXPERIMENT/CELL, which holds one run per seed."
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Replace finished runs that another configuration or another version of the code produced.",
        ),
    ] = False,
    log: Annotated[
        str | None,
        typer.Option(
            help="Log the measurements of each round: tensorboard (files in RESULTS/tensorboard; needs the package "
            "tensorboard), or FILE.py:FUNCTION (see docs/running.md).",
            metavar="LOGGER",
        ),
    ] = None,
    results: Results = Path("results"),
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train cells of an experiment.

    A cell is one method in one setting (data set, partition, participation), with all its seeds. An interrupted run is
    resumed; a finished run is not trained again, nor is a run that another experiment in RESULTS has finished: its
    files are taken. If one cell fails, the others are still trained.

    \b
    Examples:
      fedflat run quick digits/dirichlet-0.1/4-of-20/fedsam
      fedflat run quick digits/dirichlet-0.1/4-of-20/fedsam --seed 7 --set training.rounds=20
      fedflat run quick digits/dirichlet-0.1/4-of-20/fedsam --set methods.fedsam.hyperparameters.rho=0.1 --out try
    """
    started = time.perf_counter()
    keep_freed_memory()
    from fedflat.bench.experiments.experiment import load_experiment
    from fedflat.bench.experiments.results import ResultPaths, custom
    from fedflat.bench.host.torch_device import prepare_device
    from fedflat.bench.training.train import train_cell
    from fedflat.round_logs import RunLogs

    if out is not None and len(cell) > 1:
        raise UserError(f"--out is the folder of one cell, and {len(cell)} are given; use --results for several")
    overrides = overrides_of(set_)
    if seed:
        if "grid.seeds" in overrides:
            raise UserError("the seeds are given twice, by --seed and by --set grid.seeds")
        overrides["grid.seeds"] = seed
    loaded = load_experiment(experiment, overrides)
    cells = {path: loaded.cell(path) for path in cell}
    loaded.check_overrides([chosen.address for chosen in cells.values()], "the given cells")
    threads = threads or cells[cell[0]].runs[0].model.threads(available_cores())
    logs = RunLogs(log, results) if log else None
    torch_device = prepare_device(device, threads, typer.echo)

    attempts = Attempts("cells", len(cells))
    for path, one in cells.items():
        with attempts.at(path):
            folder = out or ResultPaths(results).cell(custom(loaded.name) if overrides else loaded.name, path)
            train_cell(loaded.name, one, folder, torch_device, typer.echo, replace=replace, on_round=logs)
            typer.echo(f"written to {folder}")
    attempts.check()
    typer.echo(resources_used(started))
