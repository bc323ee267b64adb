"""The command `fedflat runs`: what the store has."""

from pathlib import Path
from typing import Annotated

import typer

from fedflat.bench.input.errors import UserError
from fedflat.cli.options import Results, Where


def runs(
    where: Where = "",
    experiment: Annotated[
        str | None,
        typer.Option(help="Only the runs that the lists of this experiment name.", metavar="NAME"),
    ] = None,
    paths: Annotated[bool, typer.Option("--paths", help="Print only the directory of each run.")] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove these runs, after they are listed and you have agreed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    results: Results = Path("results"),
) -> None:
    """List the finished runs of the store.

    Prints a line for each configuration: labels, the values in which configurations of a method and setting differ,
    seeds, the mean of the last scores in percent, size and age.

    \b
    Examples:
      fedflat runs --where 'method=fedsam, rho>0.05'
      fedflat runs --experiment quick --where 'seed=0' --paths
      fedflat runs --where 'rounds<10' --delete
    """
    from fedflat.analysis.store.deleting import delete as removed
    from fedflat.analysis.store.deleting import experiments_with
    from fedflat.analysis.store.listing import as_table
    from fedflat.analysis.store.stored import stored_runs
    from fedflat.analysis.store.where import selected
    from fedflat.bench.experiments.results import ResultPaths

    places = ResultPaths(results)
    known = stored_runs(places, experiment)
    found = selected(known, where)
    if paths and not delete:
        for run in found:
            typer.echo(run.place)
        return
    for line in as_table(found) if found else ():
        typer.echo(line)
    others = f"; {len(known) - len(found)} others do not fit" if len(known) > len(found) else ""
    typer.echo(f"{len(found)} runs, {sum(run.bytes for run in found) / 2**20:,.1f} MiB{others}")
    if not (delete and found):
        return
    losing = experiments_with(found, places)
    for name, count in losing.items():
        typer.echo(f"experiment {name} loses {count} runs, which its tables and figures then need again")
    if not yes and not typer.confirm(f"remove {len(found)} runs?"):
        raise UserError("nothing was removed")
    left = removed(found, places)
    for line in left:
        typer.echo(line)
    typer.echo(f"{len(found) - len(left)} runs removed")
