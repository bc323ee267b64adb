"""The command `fedflat run`: train cells of an experiment."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from fedflat.bench.host.allocator import keep_freed_memory
from fedflat.bench.host.progress import Progress
from fedflat.bench.host.threads import available_cores
from fedflat.bench.input.errors import UserError
from fedflat.cli.batch import Attempts, resources_used
from fedflat.cli.options import Device, ExperimentName, Results, Set, Threads, overrides_of


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
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Train again, and then replace, finished runs that another version of the code trained, that are "
            "damaged, or that contradict fixed values of the engine or data that have changed.",
        ),
    ] = False,
    replace_damaged: Annotated[
        bool,
        typer.Option("--replace-damaged", help="As --replace, but only for damaged runs."),
    ] = False,
    list_: Annotated[
        bool,
        typer.Option(
            "--list",
            help="List the runs as those of the experiment, which its tables and figures read, also if values are "
            "overridden. Default: only without --set and --seed.",
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

    A cell is one method in one setting (data set, partition, participation), with all its seeds; the name of a swept
    method stands for all its values. A run is stored in RESULTS/store, where its configuration says, whoever asks for
    it: an interrupted run is resumed, a finished one is not trained again, and one that another process trains is
    waited for. If one cell fails, the others are still trained.

    \b
    Examples:
      fedflat run quick digits/dirichlet-0.1/4-of-20/fedsam
      fedflat run quick digits/dirichlet-0.1/4-of-20/fedsam --seed 7 --set training.rounds=20
      fedflat run quick digits/dirichlet-0.1/4-of-20/fedsam --set methods.fedsam.hyperparameters.rho=0.1
    """
    started = time.perf_counter()
    from fedflat.bench.experiments.results import METRICS, ResultPaths, elsewhere
    from fedflat.bench.training.answers import answer, keep, key_of

    overrides = overrides_of(set_)
    if seed:
        if "grid.seeds" in overrides:
            raise UserError("the seeds are given twice, by --seed and by --set grid.seeds")
        overrides["grid.seeds"] = seed
    paths, listed = ResultPaths(results), list_ or not overrides
    keys = {name: key_of(experiment, overrides, cell, listed, name, results) for name in (device, "auto")}
    if log is None and (lines := answer(paths, keys[device])) is not None:
        typer.echo("\n".join([*lines, resources_used(started)]))
        return
    keep_freed_memory()
    from fedflat.bench.experiments.experiment import load_experiment
    from fedflat.bench.host.torch_device import prepare_device, resolved_name
    from fedflat.bench.training.current import Replace, remarks
    from fedflat.bench.training.directories.run_files import model_files
    from fedflat.bench.training.run_directory import CONFIG, PROVENANCE, TIMES, RunDirectory
    from fedflat.bench.training.train import outcome, train_cell
    from fedflat.round_logs import RunLogs

    loaded = load_experiment(experiment, overrides)
    cells = {path: loaded.cell(path) for given in cell for path in loaded.paths_at(given)}
    loaded.check_overrides([chosen.address for chosen in cells.values()], "the given cells")
    threads = threads or next(iter(cells.values())).runs[0].model.threads(available_cores())
    new = f"a new folder of results: '{results.absolute()}'{elsewhere(results)}"
    progress = typer.echo if results.exists() else _saying(new)
    logs = RunLogs(log, results, typer.echo) if log else nullcontext()
    torch_device = prepare_device(device, threads, typer.echo)

    again: Replace = replace or ("damaged" if replace_damaged else False)
    attempts, said, remarked = Attempts("cells", len(cells)), list[str](), False
    files, models = list[Path](), list[Path]()
    for path, one in cells.items():
        with attempts.at(path), logs as on_round:
            name = loaded.name if listed else None
            folder = train_cell(name, one, results, torch_device, progress, replace=again, on_round=on_round)
            typer.echo(f"stored in {folder}")
            runs = [RunDirectory(paths.run(run)) for run in one.runs]
            said += [line for run in runs for line in outcome(one, run, torch_device, known=True)]
            said.append(f"stored in {folder}")
            remarked |= any(remarks(run, torch_device) for run in runs)
            files += [run.path / file for run in runs for file in (CONFIG, PROVENANCE, METRICS, TIMES)]
            models += [file for run in runs for file in model_files(run)]
            files += [paths.runs(loaded.name, path)] if listed else []
    attempts.check()
    if not remarked and not any(run.has_own_files for one in cells.values() for run in one.runs):
        given = {device, *({"auto"} if resolved_name("auto") == device else ())}  # jobs of Snakemake name the device
        for name in given:
            keep(paths, keys[name], said, files, models)
    typer.echo(resources_used(started))


def _saying(first: str) -> Progress:
    """Progress that prints a line before the first one: a command that is refused prints nothing."""
    left = [first]

    def say(line: str) -> None:
        while left:
            typer.echo(left.pop())
        typer.echo(line)

    return say
