"""The commands `fedflat tune` (values of methods), `fedflat tuning-report`, and `fedflat compositions ...`."""

import time
from pathlib import Path
from typing import Annotated

import typer

from bench.host.allocator import keep_freed_memory
from bench.host.threads import available_cores
from bench.input.errors import UserError, unknown
from fedflat.cli.batch import Attempts, resources_used
from fedflat.cli.options import Device, ExperimentName, Results, Set, Threads, file_path, folder_path, overrides_of

app = typer.Typer(rich_markup_mode=None)

Grid = Annotated[
    str,
    typer.Argument(
        help="The name of an experiment (a folder of paper_tables/), or the path of a YAML file.", metavar="GRID"
    ),
]
Stored = Annotated[
    Path | None,
    typer.Option(
        "--stored",
        help="The folder of the stored searches. Default: results/compositions/GRID.",
        parser=folder_path,
        metavar="FOLDER",
    ),
]
Out = Annotated[Path, typer.Option(help="The YAML file to write.", parser=file_path, metavar="FILE")]


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


def tuning_report(
    grid: Annotated[
        str,
        typer.Argument(help="The name of stored baselines, or with --runs that of an experiment.", metavar="GRID"),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The folder to write: tuning.md, tuning.tex, tables, figures. Default: RESULTS/reports/GRID/tuning.",
            parser=folder_path,
            metavar="FOLDER",
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
        typer.Option(
            help="With --runs, the file with tuned values. Default: RESULTS/tuning/EXPERIMENT/tuned.yaml.",
            parser=file_path,
            metavar="FILE",
        ),
    ] = None,
    set_: Set = None,
    results: Results = Path("results"),
    stored: Annotated[
        Path | None,
        typer.Option(
            "--baselines",
            help="The folder of the baselines. Default: results/baselines/GRID.",
            parser=folder_path,
            metavar="FOLDER",
        ),
    ] = None,
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
    from analysis.comparison.tuning.report import TuningReport
    from analysis.comparison.tuning.source import TuningSource

    source = TuningSource(grid, results, overrides_of(set_), runs, stored, tuned)
    report = TuningReport.of(source)
    page = report.write(out or source.folder, width)
    for line in (*report.words(), str(page)):
        typer.echo(line)


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
      fedflat compositions screening quick --setting dirichlet-0.1/4-of-20 --out mine/screening.yaml
    """
    from analysis.comparison.tuning.compositions.files import write_screening

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
      fedflat compositions add mine/screening.yaml --grid quick
      fedflat compositions add quick --grid quick
    """
    from analysis.comparison.tuning.compositions.searches import add as add_search
    from analysis.report.requested import RequestedExperiment

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
      fedflat compositions best quick --count 6 --out mine/composed.yaml
    """
    from analysis.comparison.tuning.compositions.evaluation import candidates
    from analysis.comparison.tuning.compositions.files import write_best
    from analysis.comparison.tuning.compositions.searches import SCREENED, load
    from bench.experiments.experiment import load_experiment

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
        typer.Option(
            help="The folder to write: compositions.md, compositions.tex, tables and the figure. Default: "
            "RESULTS/reports/GRID/compositions.",
            parser=folder_path,
            metavar="FOLDER",
        ),
    ] = None,
    results: Results = Path("results"),
    stored: Stored = None,
    baselines: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the baselines of all grids. Default: results/baselines.",
            parser=folder_path,
            metavar="FOLDER",
        ),
    ] = None,
    width: Annotated[float, typer.Option(help="The width of the figure, as printed.", min=2, metavar="INCHES")] = 6.75,
) -> None:
    """Does a composition beat the published methods?

    Writes the answer as far as results are stored.

    The best composition and the best published method are chosen by their validation accuracy. Tuned runs are read from
    the baselines of GRID and of GRID_composed.

    \b
    Example:
      fedflat compositions report bench1d
    """
    from analysis.comparison.tuning.compositions.evaluation import Evaluation
    from analysis.comparison.tuning.compositions.words import answer
    from analysis.comparison.tuning.compositions.write import write
    from bench.experiments.results import ResultPaths

    evaluation = Evaluation.of(grid, stored, baselines)
    page = write(evaluation, out or ResultPaths(results).report(grid).compositions, width)
    for sentence in answer(evaluation):
        typer.echo(sentence)
    typer.echo(str(page))
