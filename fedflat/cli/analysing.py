"""The commands `fedflat analyse`, which analyses finished runs, and `fedflat analyses`, which lists the analyses."""

import ast
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedflat.bench.files.text_table import aligned
from fedflat.bench.host.allocator import keep_freed_memory
from fedflat.bench.host.threads import available_cores
from fedflat.bench.input.errors import UserError, counted
from fedflat.cli.batch import Attempts, resources_used
from fedflat.cli.options import Assignment, Device, Results, Threads, Where, file_option, overrides_of, set_option

ANALYSES = Path(__file__).parents[1] / "analysis" / "analyses"


def analyse(
    analysis: Annotated[
        str,
        typer.Argument(
            help="The name of an analysis; 'fedflat analyses' lists them. Or yours, such as mine.py:WeightNorm.",
            metavar="ANALYSIS",
        ),
    ],
    run_dir: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A run directory (.../seed-0), a folder of the store with runs below it, or the lists of an "
            "experiment, or of one of its cells. Several are allowed.",
            metavar="FOLDER",
        ),
    ] = None,
    where: Where = "",
    compare_with: Annotated[
        list[Path] | None,
        typer.Option(
            help="For analyses that compare runs: runs of another method or partition to compare with, as FOLDER. "
            "Can be repeated.",
            metavar="FOLDER",
        ),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Execute the code of these runs (model.py, method.py), also if no experiment here has named it, now "
            "and in later commands. Read it first.",
        ),
    ] = False,
    set_: Annotated[list[Assignment] | None, set_option("an option of the analysis, for example rho=0.05")] = None,
    out: Annotated[
        Path | None,
        file_option(
            "A CSV file of your own to write, with the rows of all runs of one configuration. Default: each run has a "
            "file in its folder analyses."
        ),
    ] = None,
    list_: Annotated[
        Path | None,
        file_option("The list to write of the files of all runs, such as tables of an experiment read it.", "--list"),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Compute again what another version of the code computed.")
    ] = False,
    results: Results = Path("results"),
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Analyse finished runs: of folders, or all that fit --where.

    Writes one tidy CSV file for each run, which lies with it: what is computed already is not computed again.

    \b
    Examples:
      fedflat analyse flatness results/experiments/quick/digits/dirichlet-0.1/4-of-20/fedsam
      fedflat analyse hessian results/store/digits/dirichlet-0.1/4-of-20/*/seed-0 --set eigenvalues=10
      fedflat analyse sharpness --where 'method=fedsam, rho>0.05'
    """
    started = time.perf_counter()
    keep_freed_memory()
    import torch

    from fedflat.analysis.analyses import parse_analysis
    from fedflat.analysis.analyses.found_runs import find_runs, found_runs, grouped, places_in
    from fedflat.analysis.analyses.run_analysis import run_analysis, store_analysis
    from fedflat.analysis.analyses.stored import write_analysis_list
    from fedflat.analysis.store.stored import content
    from fedflat.analysis.store.where import selected
    from fedflat.bench.code.named_code import trust_named
    from fedflat.bench.experiments.files import experiment_names
    from fedflat.bench.experiments.results import ResultPaths
    from fedflat.bench.experiments.stored_config import trust_code
    from fedflat.bench.host.torch_device import prepare_device

    if analysis in experiment_names():
        raise UserError(
            f"{analysis} is an experiment; expected: fedflat analyse ANALYSIS FOLDER, FOLDER with finished runs"
        )
    trust_named(analysis)
    parsed = parse_analysis(analysis, overrides_of(set_))
    run_dir = run_dir or []
    _check_request(run_dir, where, out, list_, replace=replace)
    stored = content(ResultPaths(results)) if where else None
    fitting = [run.place for run in selected(stored.runs, where)] if stored else []
    if trust:
        others = (place for folder in (*run_dir, *(compare_with or ())) for place in places_in(folder))
        for place in (*fitting, *others):
            trust_code(place)
    torch_device = prepare_device(device, threads or available_cores(), typer.echo)

    if out is not None:
        torch.set_num_threads(threads or find_runs(run_dir[0]).threads)
        run_analysis(parsed, run_dir[0], out, torch_device, typer.echo, compare_with or ())
        typer.echo(f"written: {out}\n{resources_used(started)}")
        return
    compared = [*map(find_runs, compare_with or ())]
    if stored:
        damaged = f", {len(stored.damaged)} damaged" if stored.damaged else ""
        typer.echo(f"{len(fitting)} of {counted(len(stored.runs), 'run')} fit{damaged}")
    cells = [*grouped(fitting), *(runs for folder in run_dir for runs in found_runs(folder))]
    runs = counted(sum(len(cell.by_seed) for cell in cells), "run")
    typer.echo(f"to analyse: {runs} of {counted(len(cells), 'configuration')}")
    if list_ is not None and len(cells) > 1:
        raise UserError(f"--list is of runs of one configuration, and {len(cells)} are given")
    attempts = Attempts("configurations", len(cells))
    for cell in cells:
        with attempts.at(cell.place):
            torch.set_num_threads(threads or cell.threads)
            files = store_analysis(parsed, cell, torch_device, typer.echo, compared, replace=replace)
            for file in files.values():
                typer.echo(f"stored in {file}")
            if list_ is not None:
                write_analysis_list(list_, cell, files)
    attempts.check()
    typer.echo(resources_used(started))


def _check_request(folders: Sequence[Path], where: str, out: Path | None, list_: Path | None, *, replace: bool) -> None:
    """A `UserError` if these arguments exclude each other, before anything is computed."""
    from fedflat.analysis.analyses.found_runs import results_of

    if bool(folders) == bool(where):
        raise UserError("give either folders, or conditions with --where (fedflat runs lists what fits)")
    if out is not None and len(folders) != 1:
        given = f"{len(folders)} are given" if folders else "with --where, each run has its own file"
        raise UserError(f"--out is one file, of one folder; {given}")
    if out is not None and (list_ is not None or replace):
        raise UserError("--out is a file of your own; --list and --replace are for files in the store")
    if list_ is not None:
        results_of(list_)


def analyses(
    name: Annotated[
        str | None,
        typer.Argument(
            help="The name of an analysis, or yours, such as mine.py:WeightNorm. Default: list all.", metavar="ANALYSIS"
        ),
    ] = None,
) -> None:
    """List the analyses, or show the options of one.

    \b
    Examples:
      fedflat analyses
      fedflat analyses hessian
    """
    if name is not None:
        typer.echo(_described(name))
        return
    for line in aligned(list(analysis_questions().items())):
        typer.echo(line)


def analysis_questions() -> dict[str, str]:
    """One line about each analysis, by name: the first line of its module's docstring, read without importing torch."""
    files = sorted((f for f in ANALYSES.glob("*/*.py") if f.stem != "__init__"), key=lambda f: f.stem)
    return {
        file.stem: (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]
        for file in files
    }


def _described(name: str) -> str:
    from fedflat.analysis.analyses import analysis_class
    from fedflat.analysis.analyses.user_analysis import first_line
    from fedflat.bench.code.named_code import trust_named

    trust_named(name)
    analysis = analysis_class(name)
    lines = [
        f"{analysis.name}: {first_line(analysis) if analysis.own else analysis_questions()[name]}",
        f"columns: {', '.join(analysis.columns)}",
        "options:" if analysis.model_fields else "options: none",
    ]
    for option, field in analysis.model_fields.items():
        lines.append(f"  {option} = {_as_yaml(field.default)}: {field.description}")
    return "\n".join(lines)


def _as_yaml(default: Any) -> str:
    if default is None:
        return "null"
    if isinstance(default, tuple):
        return f"[{', '.join(map(_as_yaml, default))}]"
    if hasattr(default, "model_dump"):
        return f"{{{', '.join(f'{key}: {value}' for key, value in default.model_dump(exclude_none=True).items())}}}"
    return str(default)
