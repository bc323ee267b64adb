"""The command `fedflat plan`: what a target would take, before anything starts."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bench.errors import UserError


def plan(
    target: Annotated[str, typer.Argument(help="For example fedgf_table_1, fedlesam, fedtoga_runs, or all_tables.")],
    scale: Annotated[str, typer.Option(help="paper, or smoke.")] = "paper",
    rounds: Annotated[int | None, typer.Option(help="In place of the experiments' own.", min=1)] = None,
    seeds: Annotated[int | None, typer.Option(help="So many, from 0 on, in place of the experiments'.", min=1)] = None,
    results: Annotated[Path, typer.Option(help="Folder of all results: finished runs there need no time.")] = Path(
        "results"
    ),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, or cuda:<i>.")] = "auto",
) -> None:
    """Estimate runs, hours of training and disk space of a target of Snakemake on this machine. Examples:

    fedflat plan fedgf_table_1

    fedflat plan all_tables --scale smoke --seeds 1

    Gradients are timed here and now on random images, one process with the threads that a run would get; several runs
    side by side share the hours. Analyses are not counted.
    """
    from analysis.plan import in_words
    from analysis.plan import plan as estimate
    from bench.run import prepare_device
    from bench.threads import available_cores

    if not target:
        raise UserError("the target is empty (allowed: for example fedgf_table_1)")
    changes: dict[str, Any] = {} if scale == "paper" else {"scale": scale}
    if rounds is not None:
        changes["training.rounds"] = rounds
    if seeds is not None:
        changes["grid.seeds"] = list(range(seeds))
    torch_device = prepare_device(device, available_cores(), typer.echo)
    typer.echo(in_words(estimate(target, results, changes, torch_device)))
