"""The commands `fedflat analyse`, which analyses finished runs, and `fedflat analyses`, which lists the analyses."""

import ast
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fedflat.bench.files.text_table import aligned
from fedflat.bench.host.allocator import keep_freed_memory
from fedflat.bench.host.threads import available_cores
from fedflat.bench.input.errors import UserError
from fedflat.cli.batch import Attempts, resources_used
from fedflat.cli.options import Assignment, Device, Threads, file_option, overrides_of, set_option

ANALYSES = Path(__file__).parents[1] / "analysis" / "analyses"


def analyse(
    analysis: Annotated[
        str, typer.Argument(help="The name of an analysis; 'fedflat analyses' lists them.", metavar="ANALYSIS")
    ],
    run_dir: Annotated[
        list[Path],
        typer.Argument(
            help="A run directory (.../seed-0), or the folder of a cell with all its seeds. Several are allowed.",
            metavar="FOLDER",
        ),
    ],
    compare_with: Annotated[
        list[Path] | None,
        typer.Option(
            help="For analyses that compare runs: a run of another method or partition to compare with. "
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
            "The CSV file to write, if only one folder is given. Default: for runs in RESULTS/runs/..., "
            "RESULTS/analysis/custom/.../ANALYSIS.csv; for other runs, analysis/ANALYSIS.csv in the given folder."
        ),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Analyse finished runs.

    Writes one tidy CSV file for each folder, and replaces an existing one.

    \b
    Examples:
      fedflat analyse flatness results/runs/quick/digits/dirichlet-0.1/4-of-20/fedsam
      fedflat analyse hessian results/runs/quick/digits/dirichlet-0.1/4-of-20/*/seed-0 --set eigenvalues=10
    """
    started = time.perf_counter()
    keep_freed_memory()
    import torch

    from fedflat.analysis.analyses import parse_analysis
    from fedflat.analysis.analyses.run_analysis import find_runs, run_analysis
    from fedflat.bench.experiments.files import experiment_names
    from fedflat.bench.experiments.results import custom_analysis
    from fedflat.bench.experiments.stored_config import trust_code
    from fedflat.bench.host.torch_device import prepare_device

    if out is not None and len(run_dir) > 1:
        raise UserError(f"--out is one file, and {len(run_dir)} folders are given")
    if analysis in experiment_names():
        raise UserError(
            f"{analysis} is an experiment; expected: fedflat analyse ANALYSIS FOLDER, FOLDER with finished runs"
        )
    parsed = parse_analysis(analysis, overrides_of(set_))
    if trust:
        for folder in (*run_dir, *(compare_with or ())):
            trust_code(folder)
    torch_device = prepare_device(device, threads or available_cores(), typer.echo)

    attempts = Attempts("folders", len(run_dir))
    for folder in run_dir:
        with attempts.at(folder):
            file = out or custom_analysis(folder, analysis)
            first = next(iter(find_runs(folder).by_seed.values()))
            torch.set_num_threads(threads or first.config.model.threads(available_cores()))
            done = "replaced" if file.exists() else "written"
            run_analysis(parsed, folder, file, torch_device, typer.echo, compare_with or ())
            typer.echo(f"{done}: {file}")
    attempts.check()
    typer.echo(resources_used(started))


def analyses(
    name: Annotated[
        str | None, typer.Argument(help="The name of an analysis. Default: list all.", metavar="ANALYSIS")
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

    analysis = analysis_class(name)
    lines = [
        f"{name}: {analysis_questions()[name]}",
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
