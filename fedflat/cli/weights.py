"""The commands `fedflat weights ...`: list and download trained weights from which models start."""

from typing import Annotated

import typer

from fedflat.cli.data import Root, checked

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def weights(context: typer.Context) -> None:
    """List and download trained weights from which models start."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list")
def list_(root: Root = None) -> None:
    """List the models with published weights.

    Shows whether their files are on this machine.

    \b
    Example:
      fedflat weights list
    """
    from bench.models.weights import listing

    typer.echo(listing(checked(root)))


@app.command()
def download(
    model: Annotated[str, typer.Argument(help="The name of a model (see 'fedflat weights list').", metavar="MODEL")],
    root: Root = None,
) -> None:
    """Download the published weights of a model.

    The checksum of the file is verified.

    \b
    Example:
      fedflat weights download vit_b_32
    """
    from bench.models.weights import published

    typer.echo(str(published(model).download(checked(root))))
