"""The `fedflat data` command: which data sets there are, whether their files are right, and decoding them."""

from pathlib import Path
from typing import Annotated

import typer

from bench.input.errors import UserError
from fedflat.cli.options import ExperimentName, Results, Set, changes_of

app = typer.Typer(rich_markup_mode=None, help="List, check and prepare data sets; draw partitions.")

NameOrFolder = Annotated[str, typer.Argument(help="A data set of 'fedflat data list', or the folder of your images.")]
Root = Annotated[
    str | None,
    typer.Option(help="Folder of all data sets. Default: $FEDFLAT_DATA, or 'data' here.", metavar="DIR"),
]


@app.callback(invoke_without_command=True)
def data(context: typer.Context) -> None:
    """List, check and prepare data sets; draw partitions."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list")
def list_(root: Root = None) -> None:
    """List the data sets, what they hold, where they come from, and whether they are here. Example:

    fedflat data list
    """
    from bench.data.inventory import listing

    typer.echo(listing(_place(root)))


@app.command()
def check(name: NameOrFolder, root: Root = None) -> None:
    """Read all files of a data set in full, and say which are missing or not what was published. Example:

    fedflat data check cifar10 --root /scratch/data
    """
    from bench.data.inventory import check as lines

    for line in lines(name, _place(root)):
        typer.echo(line)


@app.command()
def prepare(
    name: NameOrFolder,
    root: Root = None,
    download: Annotated[bool, typer.Option(help="Fetch what is missing. Nothing is fetched without this.")] = False,
) -> None:
    """Verify, unpack and decode a data set, so that runs need only map it. Examples:

    fedflat data prepare cifar10 --download

    fedflat data prepare pictures/flowers
    """
    from bench.data.inventory import prepare as lines

    for line in lines(name, _place(root), fetch=download):
        typer.echo(line)


@app.command()
def partition(
    experiment: ExperimentName,
    label: Annotated[
        str | None, typer.Argument(help="Its partitions of this label, such as dirichlet-0.1. Default: all.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Whose split.")] = 0,
    out: Annotated[str, typer.Option(help="Folder of the written files.", metavar="FOLDER")] = "results/partitions",
    root: Root = None,
) -> None:
    """Draw who holds how many images of which class, without training, and write the split as a table. Example:

    fedflat data partition quick dirichlet-0.1
    """
    from analysis.figures.partition_map import draw_partitions
    from bench.experiments.experiment import load_experiment

    if not out.strip():
        raise UserError("--out is empty (allowed: the path of a folder)")
    for told, files in draw_partitions(load_experiment(experiment, {}), label, seed, _place(root), Path(out)):
        typer.echo(told)
        for file in files:
            typer.echo(f"  {file}")


@app.command()
def split(
    experiment: ExperimentName,
    cell: Annotated[str, typer.Argument(help="For example digits/dirichlet-0.1/4-of-20/fedsam.")],
    seed: Annotated[int, typer.Option(min=0, help="Of which of the cell's runs.")] = 0,
    set_: Set = None,
    results: Results = Path("results"),
    root: Root = None,
) -> None:
    """Write who holds which training images in a run, as the run itself keeps it, without training. Example:

    fedflat data split quick digits/dirichlet-0.1/4-of-20/fedsam
    """
    from bench.experiments.experiment import load_experiment
    from bench.experiments.results import ResultPaths
    from bench.files.csv_json import write_csv
    from bench.training.run_directory import partition_table
    from bench.training.run_setup import load_dataset, split_of

    asked = load_experiment(experiment, changes_of(set_))
    runs = {run.seed: run for run in asked.cell(cell).runs}
    if seed not in runs:
        raise UserError(f"--seed {seed}: the cell has the seeds {', '.join(map(str, runs))}")
    dataset = load_dataset(runs[seed].dataset, _place(root))
    file = ResultPaths(results).partition(asked.name, cell, seed)
    write_csv(file, partition_table(split_of(runs[seed].partition, dataset, seed), dataset.train.labels))
    typer.echo(str(file))


def _place(root: str | None) -> Path:
    from bench.data.root import checked_root, data_root

    return data_root() if root is None else checked_root(root, "--root")
