"""The `fedflat` command; `fedflat --help` lists its subcommands.

Torch is imported by the subcommands that need it: after the libraries' threads are set, and quickly for the others.
"""

import logging
import os
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.host.allocator import keep_freed_memory
from bench.host.threads import ONE_THREAD, available_cores
from bench.input.errors import UserError
from fedflat.cli.data import app as data
from fedflat.cli.options import ExperimentName, Results, Set, changes_of, file_path, folder_path
from fedflat.cli.plan import index, plan
from fedflat.cli.published import audit, published
from fedflat.describe_analysis import describe, overview

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Benchmark federated sharpness-aware learning: train, analyse, and render tables and figures.",
)
app.add_typer(data, name="data")


def _count(text: str) -> int | None:
    """A number of threads, or None for auto."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"'{text}' (allowed: auto, 1, 2, ...)")
    return int(text)


Threads = Annotated[
    int | None,
    typer.Option(
        help="CPU threads of this process. auto: one for small models, all cores for large ones.",
        parser=_count,
        metavar="N",
        show_default="auto",
    ),
]
Device = Annotated[
    str,
    typer.Option(help="auto, cpu, cuda, or cuda:<i>. auto and cuda take a GPU that no other process of yours holds."),
]


def _cost(started: float) -> str:
    """What this process took since then, in seconds of `time.perf_counter`."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss // 1024
    return f"{time.perf_counter() - started:.1f} s, {cpu:.1f} s of processor time, at most {peak} MiB of memory"


class Attempts:
    """Items of one command: if one of several fails, this is reported at once, and the others are done all the same."""

    def __init__(self, kind: str, count: int) -> None:
        self._kind, self._count = kind, count
        self._failed: list[str] = []

    @contextmanager
    def at(self, item: object) -> Iterator[None]:
        """Whatever fails in the block is the failure of this item."""
        try:
            yield
        except Exception as error:
            if self._count == 1:
                raise
            self._failed.append(str(item))
            message = str(error) if isinstance(error, UserError) else traceback.format_exc()
            typer.echo(f"fedflat: {item}: {message}", err=True)

    def check(self) -> None:
        """A `UserError` that names the items that failed, if there are any."""
        if self._failed:
            failed = ", ".join(self._failed)
            raise UserError(f"{len(self._failed)} of {self._count} {self._kind} failed: {failed}")


@app.command()
def run(
    experiment: ExperimentName,
    cell: Annotated[
        list[str], typer.Argument(help="For example digits/dirichlet-0.1/4-of-20/fedsam; several share one process.")
    ],
    seed: Annotated[
        list[int] | None, typer.Option(help="Only these seeds; repeatable. Default: all of the cell's.")
    ] = None,
    set_: Set = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of one cell. Default: RESULTS/runs/EXPERIMENT/CELL; with --seed or --set, runs/custom/...",
            parser=folder_path,
            metavar="FOLDER",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option(help="Train anew what another configuration or other code has left there.")
    ] = False,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Rounds between checkpoints.")] = 1,
    results: Results = Path("results"),
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train cells of an experiment, each one method in one setting, with all its seeds.

    An interrupted run is resumed, a finished one is left alone; if a cell fails, the others go on. Examples:

    fedflat run quick digits/dirichlet-0.1/4-of-20/fedsam

    fedflat run quick digits/dirichlet-0.1/4-of-20/fedsam --seed 7 --set training.rounds=20 --out /tmp/try
    """
    started = time.perf_counter()
    keep_freed_memory()
    from bench.experiments.experiment import load_experiment
    from bench.experiments.results import ResultPaths, custom
    from bench.host.torch_device import prepare_device
    from bench.training.train import train_cell

    if out is not None and len(cell) > 1:
        raise UserError(f"--out is the folder of one cell, and {len(cell)} are given; --results takes them all")
    changes = changes_of(set_)
    if seed:
        changes["grid.seeds"] = seed
    loaded = load_experiment(experiment, changes)
    cells = {path: loaded.cell(path) for path in cell}
    threads = threads or cells[cell[0]].runs[0].model.threads(available_cores())
    torch_device = prepare_device(device, threads, typer.echo)

    attempts = Attempts("cells", len(cells))
    for path, chosen in cells.items():
        with attempts.at(path):
            place = out or ResultPaths(results).cell(custom(loaded.name) if changes else loaded.name, path)
            train_cell(loaded.name, chosen, place, torch_device, typer.echo, checkpoint_every, replace=replace)
            typer.echo(f"written to {place}")
    attempts.check()
    typer.echo(_cost(started))


@app.command(epilog=f"\b\nAnalyses ('fedflat analyses NAME' tells the options of one):\n{overview()}")
def analyse(
    analysis: Annotated[str, typer.Argument(help="One of those below.")],
    run_dir: Annotated[
        list[Path],
        typer.Argument(help="A run directory (.../seed-0), or the folder of a cell with all its seeds; several."),
    ],
    compare_with: Annotated[
        list[Path] | None,
        typer.Option(help="Runs of another method, or with another partition, for analyses that compare; repeatable."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the analysis, as rho=0.05; repeatable.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Default: the runs' place with analysis/custom/ for runs/; for runs elsewhere, analysis/ among them.",
            parser=file_path,
            metavar="FILE",
        ),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Analyse finished runs and write a tidy file for each folder. Examples:

    fedflat analyse flatness results/runs/quick/digits/dirichlet-0.1/4-of-20/fedsam

    fedflat analyse hessian results/runs/quick/digits/dirichlet-0.1/4-of-20/*/seed-0 --set eigenvalues=10
    """
    started = time.perf_counter()
    keep_freed_memory()
    import torch

    from analysis.analyses import parse_analysis
    from analysis.analyses.run_analysis import find_runs, run_analysis
    from bench.experiments.results import custom_analysis
    from bench.host.torch_device import prepare_device

    if out is not None and len(run_dir) > 1:
        raise UserError(f"--out is one file, and {len(run_dir)} folders are given")
    asked = parse_analysis(analysis, changes_of(set_))
    torch_device = prepare_device(device, threads or available_cores(), typer.echo)

    attempts = Attempts("folders", len(run_dir))
    for folder in run_dir:
        with attempts.at(folder):
            place = out or custom_analysis(folder, analysis)
            first = next(iter(find_runs(folder).by_seed.values()))
            torch.set_num_threads(threads or first.config.model.threads(available_cores()))
            done = "replaced" if place.exists() else "written"
            run_analysis(asked, folder, place, torch_device, typer.echo, compare_with or ())
            typer.echo(f"{done}: {place}")
    attempts.check()
    typer.echo(_cost(started))


@app.command()
def analyses(name: Annotated[str | None, typer.Argument(help="One analysis, in detail.")] = None) -> None:
    """List the analyses, or tell the options of one. Examples:

    fedflat analyses

    fedflat analyses hessian
    """
    typer.echo(overview() if name is None else describe(name))


@app.command()
def table(
    experiment: ExperimentName,
    name: Annotated[str, typer.Argument(help="A file of the experiment's tables/ folder, without .yaml.")],
    set_: Set = None,
    results: Results = Path("results"),
) -> None:
    """Render one table from the results that are there: Markdown, LaTeX, CSV. Example:

    fedflat table quick accuracy

    Cells without results say so; `snakemake --cores 2 quick_table_accuracy` trains what is missing first.
    """
    from analysis.report.report import Report

    for file in Report(experiment, results, changes_of(set_)).render_table(name):
        typer.echo(str(file))


@app.command()
def figure(
    experiment: ExperimentName,
    name: Annotated[str, typer.Argument(help="A file of the experiment's figures/ folder, without .yaml.")],
    set_: Set = None,
    results: Results = Path("results"),
) -> None:
    """Draw one figure from the results that are there: PNG and PDF. Example:

    fedflat figure quick convergence
    """
    from analysis.report.report import Report

    for file in Report(experiment, results, changes_of(set_)).render_figure(name):
        typer.echo(str(file))


@app.command()
def report(experiment: ExperimentName, set_: Set = None, results: Results = Path("results")) -> None:
    """Write the page that gathers an experiment's tables and figures. Example:

    fedflat report quick
    """
    from analysis.report.report import Report

    typer.echo(str(Report(experiment, results, changes_of(set_)).render_page()))


@app.command()
def summary(experiment: ExperimentName, set_: Set = None, results: Results = Path("results")) -> None:
    """Say in a few lines how an experiment stands: runs, the leading method, where the report lies. Example:

    fedflat summary quick
    """
    from analysis.report.report import Report

    typer.echo(Report(experiment, results, changes_of(set_)).summary())


@app.command()
def baselines(
    experiment: ExperimentName,
    grid: Annotated[str, typer.Option(help="The name under which they are stored.")],
    set_: Set = None,
    results: Results = Path("results"),
    out: Annotated[
        Path | None,
        typer.Option(help="Default: results/baselines/GRID.csv.", parser=file_path, metavar="FILE"),
    ] = None,
) -> None:
    """Store what all finished runs of an experiment reached, for `fedflat compare`. Example:

    fedflat baselines quick_all --grid quick
    """
    from analysis.comparison.baselines import store
    from analysis.report.report import Report

    typer.echo(str(store(Report(experiment, results, changes_of(set_)), grid, out)))


@app.command()
def compare(
    method: Annotated[str, typer.Argument(help="The label of a method that has been trained.")],
    grid: Annotated[str, typer.Option(help="The stored baselines to compare with.")],
    experiment: Annotated[
        str | None,
        typer.Option(help="The experiment of the runs: a name or a YAML file. Default: the one with the grid's name."),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="test_accuracy, test_loss, train_loss or train_accuracy.")
    ] = "test_accuracy",
    by_setting: Annotated[bool, typer.Option("--by-setting", help="Also one table per setting.")] = False,
    set_: Set = None,
    results: Results = Path("results"),
    stored: Annotated[
        Path | None,
        typer.Option("--baselines", help="Default: results/baselines/GRID.csv.", parser=file_path, metavar="FILE"),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write the tables as one tidy CSV.", parser=file_path, metavar="FILE")
    ] = None,
) -> None:
    """Compare a method's finished runs with stored baselines, paired by setting and seed. Examples:

    fedflat compare fedsam --grid quick

    fedflat compare my_method --grid quick --experiment mine/experiments.yaml --by-setting --csv mine.csv
    """
    from analysis.comparison.compare import compare as compare_with_stored
    from analysis.comparison.text import as_text
    from bench.files.csv_json import write_csv

    comparison = compare_with_stored(
        method, grid, results, experiment=experiment, changes=changes_of(set_), metric=metric, baselines=stored
    )
    if csv is not None:
        write_csv(csv, comparison.csv(by_setting))
    typer.echo(as_text(comparison, by_setting))


@app.command()
def methods(name: Annotated[str | None, typer.Argument(help="One method, in detail.")] = None) -> None:
    """List the methods, or explain one. Examples:

    fedflat methods

    fedflat methods fedlesam_s
    """
    from fedflat import describe_method as described

    typer.echo(described.overview() if name is None else described.describe(name))


@app.command()
def schema() -> None:
    """Print the JSON schema of experiment files, with which Snakemake validates them. Example:

    fedflat schema > bench/experiments/experiment.schema.json
    """
    import json

    from bench.experiments.experiment import experiment_schema

    typer.echo(json.dumps(experiment_schema(), indent=1))


app.command()(published)
app.command()(audit)
app.command()(plan)
app.command()(index)

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer does not export it, and brings its module from Click or from its own copy of Click."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 + SIGINT."""


def command() -> int:
    """Do what the arguments say; the exit code. Bad input is one line on stderr and exit code 2."""
    os.environ.update(ONE_THREAD)
    logging.getLogger("fedflat.data").addHandler(logging.StreamHandler())  # decoding takes a while: say so
    logging.getLogger("fedflat.data").setLevel(logging.INFO)
    try:
        # Without arguments: the help.
        code = app(sys.argv[1:] or ["--help"], prog_name="fedflat", standalone_mode=False)
    except UserError as error:
        return _failed(2, str(error))
    except _UsageError as error:
        return _failed(2, _usage(error))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:  # what recent versions of Typer return instead of raising Abort
        return _failed(code, "interrupted")
    return int(code or 0)


def _failed(code: int, message: str) -> int:
    print(f"fedflat: {message}", file=sys.stderr)
    return code


def _usage(error: Any) -> str:
    """What Typer found wrong with the command line, and where the right one is told."""
    message = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx else "fedflat"
    return f"{message[0].lower()}{message[1:]}; see '{command} --help'"
