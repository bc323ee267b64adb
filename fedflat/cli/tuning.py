"""The command `fedflat tune`: search for the values of methods, each with the same number of trials."""

import time
from pathlib import Path
from typing import Annotated

import typer

from bench.host.allocator import keep_freed_memory
from bench.host.threads import available_cores
from bench.input.errors import UserError, unknown
from fedflat.cli.batch import Attempts, resources_used
from fedflat.cli.options import Device, ExperimentName, Results, Set, Threads, file_path, overrides_of


def tune(
    experiment: ExperimentName,
    cell: Annotated[
        list[str] | None,
        typer.Argument(
            help="The path of a cell, DATASET/PARTITION/PARTICIPATION/METHOD. Default: all cells of the experiment.",
            metavar="CELL",
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(help="Tune only methods with this label or name. Can be repeated.", metavar="METHOD"),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Configurations of each method in each setting. Default: tuning.trials.", metavar="N"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The YAML file of the winners. Default: RESULTS/tuning/EXPERIMENT/tuned.yaml; with cells, none.",
            parser=file_path,
            metavar="FILE",
        ),
    ] = None,
    set_: Set = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace trials of another search in the same folder of results.")
    ] = False,
    results: Results = Path("results"),
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Tune methods with equal numbers of trials.

    In each cell, trial 0 has the values of the experiment, and the others have values in the search ranges that
    `fedflat methods METHOD` shows. Trials are scored on training images that clients hold out; the test images are not
    used. After each rung, only the better half goes on. Then the winners are written as an experiment that extends this
    one. A killed command goes on where it was; trials that are finished are not trained again.

    \b
    Examples:
      fedflat tune quick --trials 8
      fedflat tune quick --methods fedsam --methods fedavg --out mine/tuned.yaml
      fedflat tune quick digits/dirichlet-0.1/4-of-20/fedsam --set 'search.lr={low: 0.02, high: 0.2, log: true}'
    """
    started = time.perf_counter()
    keep_freed_memory()
    from bench.experiments.experiment import load_experiment
    from bench.experiments.results import ResultPaths
    from bench.host.torch_device import prepare_device
    from bench.tuning.cell_search import CellSearch
    from bench.tuning.given import check_names
    from bench.tuning.tune import tune_cell
    from bench.tuning.winners import write_winners

    overrides = overrides_of(set_)
    for key, option, given in (("tuning.trials", "--trials", trials), ("chosen", "--methods", methods or None)):
        if given is not None and key in overrides:
            raise UserError(f"{key} is given twice, by {option} and by --set")
        overrides |= {} if given is None else {key: given}
    loaded = load_experiment(experiment, overrides)
    for name in methods or ():
        if not any(name in names for names in loaded.names_of_methods.values()):
            raise unknown(f"method of experiment {loaded.name}", name, loaded.methods)
    if out is not None and out.suffix not in (".yaml", ".yml"):
        raise UserError(f"--out '{out}' (allowed: a file whose name ends in .yaml)")
    check_names(loaded)
    paths = ResultPaths(results)
    searches = {path: CellSearch.of(loaded, path, paths.tuning(loaded.name, path)) for path in cell or loaded.paths()}
    first = next(iter(searches.values())).cell.runs[0]
    torch_device = prepare_device(device, threads or first.model.threads(available_cores()), typer.echo)

    attempts = Attempts("cells", len(searches))
    for path, search in searches.items():
        with attempts.at(path):
            tune_cell(search, torch_device, typer.echo, replace=replace)
    attempts.check()
    if out is not None or not cell:
        file = out or paths.tuned(loaded.name)
        replaced = {key: value for key, value in overrides.items() if key not in ("chosen", "tuning.trials")}
        write_winners(loaded, experiment, replaced, list(searches.values()), file)
        typer.echo(f"written to {file}")
    typer.echo(resources_used(started))
