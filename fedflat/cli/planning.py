"""The command `fedflat plan`: estimated costs of runs."""

from pathlib import Path
from typing import Annotated

import typer

from fedflat.bench.input.errors import UserError
from fedflat.cli.options import OwnExperiments, Results


def plan(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET",
            help="Targets of Snakemake, for example fedgf_table_1, fedlesam, fedtoga_runs or all_tables, or an "
            "experiment's YAML file.",
        ),
    ],
    scale: Annotated[
        str | None, typer.Option(help="paper or smoke. Default: that of the experiment.", metavar="SCALE")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="The number of rounds. Default: that of the experiment.", min=1, metavar="N")
    ] = None,
    seeds: Annotated[
        list[int] | None,
        typer.Option(
            "--seed",
            help="Count only this seed. Can be repeated. Default: all seeds of the experiment.",
            metavar="SEED",
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", help="Count only methods with this label or name. Can be repeated.", metavar="METHOD"),
    ] = None,
    experiments: OwnExperiments = None,
    results: Results = Path("results"),
    device: Annotated[
        str, typer.Option(help="The device to estimate for: auto, cpu, cuda, or cuda:0, cuda:1, ...", metavar="DEVICE")
    ] = "auto",
) -> None:
    """Estimate the cost of Snakemake's targets.

    Prints the number of runs, the hours of training and the disk space. The hours are hours of one core, or of the GPU.
    They are computed from the time of one gradient, which this command measures with one thread on random images and
    prints next to the time in paper_tables/costs.csv; on a busy machine, the hours are too high. A cell that several
    targets need is counted once. Finished runs in the store take no time, nor do runs that another cell of the plan
    trains (`taken`). Analyses are not counted.

    \b
    Examples:
      fedflat plan fedgf_table_1 fedgf_figure_4
      fedflat plan mine/experiments.yaml
      fedflat plan mine_table_accuracy --experiment mine/experiments.yaml
      fedflat plan all_tables --scale smoke --seed 0 --method fedavg --method fedsam
    """
    from fedflat.analysis.planning.gradient_times import GradientTimes
    from fedflat.analysis.planning.plan import as_text
    from fedflat.analysis.planning.plan import plan as cost_of
    from fedflat.bench.experiments.files import PAPER_TABLES
    from fedflat.bench.experiments.overrides import config_overrides
    from fedflat.bench.host.torch_device import prepare_device

    if not all(targets):
        raise UserError("the target is empty (allowed: for example fedgf_table_1)")
    given = {"scale": scale, "rounds": rounds, "seeds": seeds, "methods": methods}
    overrides = config_overrides({key: value for key, value in given.items() if value is not None})
    times = GradientTimes.measured(prepare_device(device, 1, typer.echo))
    typer.echo(as_text(cost_of(targets, results, overrides, times, experiments or ())))
    for line in times.compared(GradientTimes.read(PAPER_TABLES / "costs.csv")):
        typer.echo(line)
