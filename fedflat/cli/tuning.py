"""The commands `fedflat tune` and `fedflat search`, which tune values of methods, and `fedflat tuning-report`."""

import time
from pathlib import Path
from typing import Annotated

import typer

from fedflat.bench.host.allocator import keep_freed_memory
from fedflat.bench.host.threads import available_cores
from fedflat.bench.input.errors import UserError, unknown
from fedflat.cli.batch import Attempts, resources_used
from fedflat.cli.options import (
    Device,
    ExperimentName,
    Results,
    Set,
    StoredBaselines,
    StoredOrRuns,
    Threads,
    file_option,
    folder_option,
    overrides_of,
)


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
        file_option("The YAML file of the winners. Default: RESULTS/tuning/EXPERIMENT/tuned.yaml; with cells, none."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="If all trials of a cell fail, end with an error, and write no winners.")
    ] = False,
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
    from fedflat.bench.experiments.experiment import load_experiment
    from fedflat.bench.experiments.results import ResultPaths
    from fedflat.bench.host.torch_device import prepare_device
    from fedflat.bench.tuning.cell_search import CellSearch
    from fedflat.bench.tuning.given import check_names
    from fedflat.bench.tuning.tune import tune_cell
    from fedflat.bench.tuning.winners import require_winners, write_winners

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
    if strict:
        require_winners(searches.values())
    if out is not None or not cell:
        file = out or paths.tuned(loaded.name)
        replaced = {key: value for key, value in overrides.items() if key not in ("chosen", "tuning.trials")}
        write_winners(loaded, experiment, replaced, list(searches.values()), file)
        typer.echo(f"written to {file}")
    typer.echo(resources_used(started))


def search(
    grid: Annotated[
        str, typer.Argument(help="The name of an experiment with a search.yaml, or such a file.", metavar="GRID")
    ],
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Entries of budget.order, such as main.ten; units SETTING/METHOD/SEED, with their bases and runs; or "
            "rounds/SETTING. Default: all of budget.order.",
            metavar="ENTRY",
        ),
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Only print what is done, the hours spent, and the hours to come.")
    ] = False,
    hours: Annotated[
        float | None,
        typer.Option(help="Stop before the first batch of trials that would begin later.", min=0, metavar="HOURS"),
    ] = None,
    results: Results = Path("results"),
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Search the values of a grid's methods by its protocol.

    Each base is searched, and its methods sweep their own values at the base's best trials; then the winning values are
    trained with further seeds. Several processes may work at the same time: they share the work. A killed command goes
    on where it was, to the same numbers; trials that are finished are not trained again.

    \b
    Examples:
      fedflat search flat1d rounds
      fedflat search flat1d main/feddyn/1000 main/fedspeed/1000
      fedflat search flat1d --hours 8
      fedflat search flat1d --status
    """
    started = time.perf_counter()
    keep_freed_memory()
    from fedflat.bench.host.torch_device import prepare_device
    from fedflat.bench.tuning.protocol.queue import Queue, RoundsItem, work
    from fedflat.bench.tuning.protocol.reading import SearchedGrid
    from fedflat.bench.tuning.protocol.status import Status
    from fedflat.bench.tuning.protocol.units import Units

    queue = Queue(Units(SearchedGrid.read(grid), results))
    if status:
        for line in Status(queue).lines():
            typer.echo(line)
        return
    items = queue.named(what) if what else [item for found in queue.entries.values() for item in found]
    torch_device = prepare_device(device, threads or 1, typer.echo)
    has_ended = work(items, torch_device, typer.echo, None if hours is None else hours * 3600)
    for line in (line for item in items if isinstance(item, RoundsItem) for line in item.rule.lines()):
        typer.echo(line)
    left = [item.name for item in items if not item.has_ended]
    if left:
        why = "needs what is not searched or not chosen yet" if has_ended else "the time is over"
        typer.echo(f"{len(left)} of {len(items)} left ({why}), the first is {left[0]}")
    typer.echo(resources_used(started))


def tuning_report(
    grid: StoredOrRuns,
    out: Annotated[
        Path | None,
        folder_option(
            "The folder to write: tuning.md, tuning.tex, tables, figures. Default: RESULTS/reports/GRID/tuning."
        ),
    ] = None,
    runs: Annotated[
        bool,
        typer.Option(
            "--runs", help="Read finished runs and trials of an experiment and its tuned values, not stored ones."
        ),
    ] = False,
    tuned: Annotated[
        Path | None,
        file_option("With --runs, the file with tuned values. Default: RESULTS/tuning/EXPERIMENT/tuned.yaml."),
    ] = None,
    set_: Set = None,
    results: Results = Path("results"),
    stored: StoredBaselines = None,
    width: Annotated[float, typer.Option(help="The width of the figures, as printed.", min=2, metavar="INCHES")] = 6.75,
) -> None:
    """What does tuning change? Write tables and figures.

    Compares runs with untuned and with tuned values: accuracies, the gain of each method, and ranks. From trials that
    were all trained to the end, it shows how scores and ranks depend on the number of trials. A part without data is
    left out, and a line says why.

    \b
    Examples:
      fedflat tuning-report bench1d
      fedflat tuning-report quick --runs --tuned mine/tuned.yaml --out report
    """
    from fedflat.analysis.comparison.tuning.report import TuningReport
    from fedflat.analysis.comparison.tuning.source import TuningSource

    source = TuningSource(grid, results, overrides_of(set_), runs, stored, tuned)
    report = TuningReport.of(source)
    page = report.write(out or source.folder, width)
    for line in (*report.words(), str(page)):
        typer.echo(line)
