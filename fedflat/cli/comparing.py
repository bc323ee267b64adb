"""The command `fedflat compare`: a method and the stored baselines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedflat.cli.options import Results, Set, StoredBaselines, folder_option, overrides_of

if TYPE_CHECKING:
    from fedflat.analysis.comparison.compare import Comparison


def compare(
    method: Annotated[str, typer.Argument(help="The label of a method whose runs are finished.", metavar="METHOD")],
    grid: Annotated[str, typer.Option(help="The name of the stored baselines to compare with.", metavar="GRID")],
    experiment: Annotated[
        str | None,
        typer.Option(
            help="The experiment of the runs: a name or a YAML file. Default: the experiment named GRID.",
            metavar="EXPERIMENT",
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            help="A measured column of the baselines, such as test_accuracy, test_loss, generalisation_gap, "
            "rounds_to_80 or lambda_max.",
            metavar="METRIC",
        ),
    ] = "test_accuracy",
    variant: Annotated[
        str | None,
        typer.Option(
            help="untuned or tuned stored runs. Default: tuned if the method's experiment is, and if such runs are "
            "stored.",
            metavar="VARIANT",
        ),
    ] = None,
    by_setting: Annotated[bool, typer.Option("--by-setting", help="Also show one table for each setting.")] = False,
    set_: Set = None,
    results: Results = Path("results"),
    stored: StoredBaselines = None,
    out: Annotated[
        Path | None, folder_option("Also write the report to this folder: report.md, report.tex, tables and figures.")
    ] = None,
    width: Annotated[
        float, typer.Option(help="The width of the report's figures, as printed.", min=2, max=40, metavar="INCHES")
    ] = 6.75,
) -> None:
    """Is a method better than the stored baselines?

    Each finished run of the method is compared with the stored runs of the same setting and seed. A run is found by its
    configuration, in whichever experiment of the results it was trained.

    In a grid with a protocol, such as flat1d, METHOD is a Python file, EXPERIMENT:LABEL or a name: it is searched by
    the protocol with each stored tuning seed, trained, and compared. What is done already is kept; two such commands at
    the same time share the work.

    \b
    Examples:
      fedflat compare fedsam --grid quick
      fedflat compare mine.py --grid flat1d --out report
      fedflat compare my_method --grid quick --experiment mine/experiments.yaml --out report
    """
    from fedflat.analysis.comparison.compare import compare as compare_with_stored
    from fedflat.analysis.comparison.report.text import as_text
    from fedflat.bench.input.errors import UserError
    from fedflat.bench.tuning.protocol.reading import has_protocol

    if experiment is None and has_protocol(grid):
        given = {"--metric": metric != "test_accuracy", "--variant": variant is not None, "--set": bool(set_)}
        if refused := [name for name, is_given in given.items() if is_given]:
            raise UserError(f"{refused[0]}: a grid with a protocol compares test accuracies, by its own search")
        comparison = _searched(method, grid, results, stored)
    else:
        comparison = compare_with_stored(
            method,
            grid,
            results,
            experiment=experiment,
            overrides=overrides_of(set_),
            metric=metric,
            variant=variant,
            baselines=stored,
        )
    text = as_text(comparison, by_setting)
    if out is not None:
        from fedflat.analysis.comparison.report.write import write  # the library of one figure takes seconds to import

        text += f"\n\n{write(comparison, out, width)}"
    typer.echo(text)


def _searched(method: str, grid: str, results: Path, stored: Path | None) -> "Comparison":
    """The comparison of a method that is searched by a grid's protocol. `stored`: the folder of the grid's results."""
    from fedflat.analysis.planning.compared_by_protocol import ComparedByProtocol
    from fedflat.bench.host.torch_device import prepare_device

    compared = ComparedByProtocol.of(method, grid, results, None if stored is None else stored.parent)
    if not compared.is_stored:
        compared.search(prepare_device("cpu", 1, typer.echo), typer.echo)
    return compared.comparison()
