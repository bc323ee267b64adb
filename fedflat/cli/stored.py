"""The command `fedflat runs`: what the store has."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedflat.bench.input.errors import UserError, counted
from fedflat.cli.options import Results, Where


def runs(
    where: Where = "",
    experiment: Annotated[
        str | None,
        typer.Option(help="Only the runs that the lists of this experiment name.", metavar="NAME"),
    ] = None,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Instead of finished runs, list those with missing, cut or edited files.")
    ] = False,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Instead of finished runs, list unfinished ones, perhaps in training.")
    ] = False,
    paths: Annotated[bool, typer.Option("--paths", help="Print only the directory of each run.")] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove the runs that the other options choose, after you have agreed.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="With --delete: all finished runs of the store.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    results: Results = Path("results"),
) -> None:
    """List the finished runs of the store.

    Prints a line for each configuration: labels, the values in which configurations of a method and setting differ,
    seeds, the mean of the last scores in percent, size and age. Damaged runs are named, with the reason, and left out.

    \b
    Examples:
      fedflat runs --where 'method=fedsam, rho>0.05'
      fedflat runs --experiment quick --where 'seed=0' --paths
      fedflat runs --where 'rounds<10' --delete
      fedflat runs --damaged --unfinished --delete
    """
    if delete and not (where.strip(" ,") or experiment or damaged or unfinished or all_):
        raise UserError(
            "--delete needs --where, --experiment, --damaged or --unfinished, which say what is removed; --all removes "
            "all finished runs"
        )
    if (damaged or unfinished) and where:
        raise UserError("--where chooses among finished runs, so not with --damaged or --unfinished")
    from fedflat.analysis.store.deleting import check_removable, experiments_with
    from fedflat.analysis.store.deleting import delete as removed
    from fedflat.analysis.store.listing import as_table
    from fedflat.analysis.store.stored import content
    from fedflat.analysis.store.where import selected
    from fedflat.bench.experiments.results import ResultPaths

    places = ResultPaths(results)
    stored = content(places, experiment)
    found = selected(stored.runs, where)
    chosen = [run.place for run in found]
    if damaged or unfinished:
        chosen = [*(stored.damaged if damaged else ()), *(stored.unfinished if unfinished else ())]
    for line in chosen if paths or damaged or unfinished else as_table(found) if found else ():
        typer.echo(line)
    if paths and not delete:
        return
    left = {
        f"{counted(len(stored.runs) - len(found), 'other')} not chosen": len(stored.runs) > len(found),
        f"{len(stored.damaged)} damaged (--damaged)": stored.damaged,
        f"{len(stored.unfinished)} unfinished (--unfinished)": stored.unfinished,
    }
    size = sum(run.about["MiB"] for run in found)
    typer.echo("; ".join([f"{counted(len(found), 'run')}, {size:,.1f} MiB", *(text for text in left if left[text])]))
    if not (delete and chosen):
        return
    check_removable(chosen)
    for name, count in experiments_with(chosen, places).items():
        typer.echo(f"experiment {name} loses {counted(count, 'run')}, which its tables and figures then need again")
    if not yes:
        typer.echo(f"remove {counted(len(chosen), 'run')}? [y/N] ", nl=False)
        if (sys.stdin.readline() if sys.stdin else "").strip().lower() not in ("y", "yes"):
            raise UserError("nothing was removed (allowed: y; --yes removes without asking)")
    kept = removed(chosen, places)
    for line in kept:
        typer.echo(line)
    typer.echo(f"{counted(len(chosen) - len(kept), 'run')} removed")
