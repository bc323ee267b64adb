"""The commands `fedflat plan` and `fedflat index`: what targets would take, before anything starts."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bench.input.errors import UserError
from fedflat.cli.options import Results


def plan(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...", help="For example fedgf_table_1, fedlesam, fedtoga_runs, or all_tables; several."
        ),
    ],
    scale: Annotated[str, typer.Option(help="paper, or smoke.")] = "paper",
    rounds: Annotated[int | None, typer.Option(help="In place of the experiments' own.", min=1)] = None,
    seeds: Annotated[int | None, typer.Option(help="So many, from 0 on, in place of the experiments'.", min=1)] = None,
    methods: Annotated[
        list[str] | None, typer.Option("--method", help="Only methods of this label or name; repeatable.")
    ] = None,
    experiments: Annotated[
        list[str] | None,
        typer.Option(
            "--experiment",
            help="YAML file of an own experiment, whose targets are known then, too; repeatable.",
            metavar="FILE",
        ),
    ] = None,
    results: Results = Path("results"),
    device: Annotated[str, typer.Option(help="What is timed: auto, cpu, cuda, or cuda:<i>.")] = "auto",
) -> None:
    """Estimate runs, hours of training and disk space of targets of Snakemake on this machine. Examples:

    fedflat plan fedgf_table_1 fedgf_figure_4

    fedflat plan mine_table_accuracy --experiment mine/experiments.yaml

    fedflat plan all_tables --scale smoke --seeds 1 --method fedavg --method fedsam

    Hours are those of one core (or of the GPU); several runs side by side share them. Gradients are timed here and now
    on random images, with one thread. Cells that several targets need are counted once, finished runs in the folder of
    results take no time, and analyses are not counted.
    """
    from analysis.planning.gradient_times import GradientTimes
    from analysis.planning.plan import in_words
    from analysis.planning.plan import plan as estimate
    from bench.host.torch_device import prepare_device

    if not all(targets):
        raise UserError("the target is empty (allowed: for example fedgf_table_1)")
    changes: dict[str, Any] = {} if scale == "paper" else {"scale": scale}
    if rounds is not None:
        changes["training.rounds"] = rounds
    if seeds is not None:
        changes["grid.seeds"] = list(range(seeds))
    if methods:
        changes["chosen"] = methods
    times = GradientTimes.measured(prepare_device(device, 1, typer.echo))
    typer.echo(in_words(estimate(targets, results, changes, times, experiments or ())))


def index(
    measure: Annotated[bool, typer.Option("--measure", help="Time gradients anew, here and now.")] = False,
    out: Annotated[
        str | None, typer.Option(help="Folder of README.md and costs.csv. Default: paper_tables.", metavar="FOLDER")
    ] = None,
) -> None:
    """Write the index of the papers' tables and figures, with what each takes. Examples:

    fedflat index

    fedflat index --measure --out /tmp/here

    Hours are those of one core. They follow from the times of gradients in costs.csv; --measure writes that file, too:
    gradients are timed on the CPU, always with one thread.
    """
    from analysis.planning.gradient_times import GradientTimes
    from analysis.planning.paper_index import page
    from bench.experiments.files import PAPER_TABLES
    from bench.files.atomic import write_text
    from bench.host.torch_device import prepare_device

    if out is not None and not out.strip():
        raise UserError("--out is empty (allowed: the path of a folder)")
    folder = PAPER_TABLES if out is None else Path(out)
    costs, readme = folder / "costs.csv", folder / "README.md"
    times = GradientTimes.measured(prepare_device("cpu", 1)) if measure else GradientTimes.read(costs)
    text = page(times)
    if measure:
        times.write(costs)
    write_text(readme, text)
    typer.echo(str(readme))
