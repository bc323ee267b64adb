"""The commands `fedflat data ...` and `fedflat weights ...`: what must be on this machine before runs start."""

from pathlib import Path
from typing import Annotated

import typer

from fedflat.bench.input.errors import UserError
from fedflat.cli.options import ExperimentName, Results, Set, overrides_of

app = typer.Typer(rich_markup_mode=None)
weights_app = typer.Typer(rich_markup_mode=None)

NameOrFolder = Annotated[
    str,
    typer.Argument(
        help="The name of a data set (see 'fedflat data list'), or the path of a folder of images.", metavar="DATASET"
    ),
]
NameOrExperiment = Annotated[
    str,
    typer.Argument(
        help="The name of a data set (see 'fedflat data list'), the path of a folder of images, or an experiment (its "
        "name or YAML file), whose data sets are decoded as it needs them.",
        metavar="DATASET",
    ),
]
Part = Annotated[
    str | None,
    typer.Argument(help="The only part of the experiment whose data set is prepared. Default: all.", metavar="PART"),
]
Root = Annotated[
    str | None,
    typer.Option(
        help="The folder that holds all data sets. Default: $FEDFLAT_DATA, or 'data' in the current folder.",
        metavar="FOLDER",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="The seed of the run; the split depends on it.", metavar="N")]


@app.callback(invoke_without_command=True)
def data(context: typer.Context) -> None:
    """List, check and prepare data sets; show partitions."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list")
def list_(root: Root = None) -> None:
    """List the data sets.

    Shows the content, licence and source of each data set, and whether its files are on this machine.

    \b
    Example:
      fedflat data list
    """
    from fedflat.bench.data.inventory import listing

    typer.echo(listing(_checked(root)))


@app.command()
def check(name: NameOrFolder, root: Root = None) -> None:
    """Check the files of a data set.

    Reads all files and compares them with the published checksums. Missing and wrong files are listed.

    \b
    Example:
      fedflat data check cifar10 --root /scratch/data
    """
    from fedflat.bench.data.inventory import check as lines

    for line in lines(name, _checked(root)):
        typer.echo(line)


@app.command()
def prepare(
    name: NameOrExperiment,
    part: Part = None,
    root: Root = None,
    download: Annotated[
        bool, typer.Option("--download", help="Download missing files. Without this option nothing is downloaded.")
    ] = False,
) -> None:
    """Verify, unpack and decode a data set.

    The decoded images are stored in a cache, so that runs start quickly. Images of several sizes are decoded to one
    size: that of the data set's default, or with an experiment that of its runs.

    \b
    Examples:
      fedflat data prepare cifar10 --download
      fedflat data prepare pictures/flowers
      fedflat data prepare fedsam_caldarola cityscapes_uniform
    """
    from fedflat.bench.data.inventory import prepare as of_name
    from fedflat.bench.data.inventory import prepare_all
    from fedflat.bench.data.sources import SOURCES
    from fedflat.bench.experiments.data_sets import data_sets
    from fedflat.bench.experiments.experiment import load_experiment
    from fedflat.bench.experiments.files import experiment_names

    folder = _checked(root)
    if name in SOURCES and part is not None:
        raise UserError(f"{name} is a data set, which has no part '{part}' (allowed with a part: an experiment)")
    if name not in SOURCES and (part is not None or name in experiment_names() or name.endswith((".yaml", ".yml"))):
        lines = prepare_all(data_sets(load_experiment(name, {}), part, folder), folder, fetch=download)
    else:
        lines = of_name(name, folder, fetch=download)
    for line in lines:
        typer.echo(line)


@app.command()
def partition(
    experiment: ExperimentName,
    label: Annotated[
        str | None,
        typer.Argument(help="The label of a partition, for example dirichlet-0.1. Default: all.", metavar="PARTITION"),
    ] = None,
    seed: Seed = 0,
    results: Results = Path("results"),
    root: Root = None,
) -> None:
    """Show how many images each client holds.

    Draws a heat map of the numbers of images per client and class, and writes the split as a table. Nothing is trained.

    \b
    Example:
      fedflat data partition quick dirichlet-0.1
    """
    from fedflat.analysis.figures.partition_map import draw_partitions
    from fedflat.bench.experiments.experiment import load_experiment
    from fedflat.bench.experiments.results import ResultPaths

    loaded, paths = load_experiment(experiment, {}), ResultPaths(results)
    for description, files in draw_partitions(loaded, label, seed, _checked(root), paths):
        typer.echo(description)
        for file in files:
            typer.echo(f"  {file}")


@app.command()
def split(
    experiment: ExperimentName,
    cell: Annotated[
        str,
        typer.Argument(
            help="The path of a cell, DATASET/PARTITION/PARTICIPATION/METHOD, for example "
            "digits/dirichlet-0.1/4-of-20/fedsam.",
            metavar="CELL",
        ),
    ],
    seed: Seed = 0,
    set_: Set = None,
    results: Results = Path("results"),
    root: Root = None,
) -> None:
    """Write the split of one run.

    The table lists the training images that each client holds, as in the run's own files. Nothing is trained.

    \b
    Example:
      fedflat data split quick digits/dirichlet-0.1/4-of-20/fedsam
    """
    from fedflat.bench.experiments.data_sets import check_partition
    from fedflat.bench.experiments.experiment import load_experiment
    from fedflat.bench.experiments.results import ResultPaths
    from fedflat.bench.files.csv_json import write_csv
    from fedflat.bench.training.run_directory import partition_table
    from fedflat.bench.training.run_setup import load_dataset, split_of

    loaded = load_experiment(experiment, overrides_of(set_))
    runs = {run.seed: run for run in loaded.cell(cell).runs}
    if seed not in runs:
        raise UserError(f"--seed {seed}: the cell has the seeds {', '.join(map(str, runs))}")
    check_partition(runs[seed].partition, runs[seed].dataset, _checked(root))
    dataset = load_dataset(runs[seed].dataset, _checked(root))
    file = ResultPaths(results).partition(loaded.name, cell, seed)
    write_csv(file, partition_table(split_of(runs[seed].partition, dataset, seed), dataset.train.labels))
    typer.echo(str(file))


@weights_app.callback(invoke_without_command=True)
def weights(context: typer.Context) -> None:
    """List and download trained weights from which models start."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@weights_app.command("list")
def list_weights(root: Root = None) -> None:
    """List the models with published weights.

    Shows whether their files are on this machine.

    \b
    Example:
      fedflat weights list
    """
    from fedflat.bench.models.weights import listing

    typer.echo(listing(_checked(root)))


@weights_app.command("download")
def download_weights(
    model: Annotated[str, typer.Argument(help="The name of a model (see 'fedflat weights list').", metavar="MODEL")],
    root: Root = None,
) -> None:
    """Download the published weights of a model.

    The checksum of the file is verified.

    \b
    Example:
      fedflat weights download vit_b_32
    """
    from fedflat.bench.models.weights import published

    typer.echo(str(published(model).download(_checked(root))))


def _checked(root: str | None) -> Path:
    """The folder of data sets that the option names, or the default."""
    from fedflat.bench.data.root import checked_root, data_root

    return data_root() if root is None else checked_root(root, "--root")
