"""The commands `fedflat verify`, `export` and `import`: where results come from, and how they are passed on."""

import functools
import time
from pathlib import Path
from typing import Annotated

import typer

from fedflat.bench.host.allocator import keep_freed_memory
from fedflat.bench.host.threads import available_cores
from fedflat.bench.input.errors import UserError, first_few
from fedflat.cli.batch import resources_used
from fedflat.cli.options import (
    OwnExperiments,
    Results,
    Set,
    file_option,
    file_path,
    folder_option,
    folder_path,
    overrides_of,
)


def verify(
    folder: Annotated[
        list[Path],
        typer.Argument(
            help="A run directory (.../seed-0), a folder of the store, or one with the lists of an experiment. Several "
            "are allowed.",
            parser=folder_path,
            metavar="FOLDER",
        ),
    ],
    rounds: Annotated[
        int, typer.Option(help="How many rounds of each run are computed again.", min=0, metavar="N")
    ] = 1,
    first: Annotated[
        int | None,
        typer.Option(
            help="The first of these rounds. Computing begins at the latest stored state before it. Default: after the "
            "latest stored state that has enough rounds after it.",
            min=1,
            metavar="ROUND",
        ),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Execute the user-defined code in the runs. Read it first.")
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            help="auto, cpu, cuda, or cuda:0, cuda:1, ... auto: the kind of device on which the run was trained, if "
            "this machine has it.",
            metavar="DEVICE",
        ),
    ] = "auto",
) -> None:
    """Verify finished runs.

    Reads all files of a run, and compares identity, data and partition with what the run recorded. The final model is
    evaluated again, and some rounds are computed again, from the latest stored state that has enough rounds after it,
    or from the start. The result must have the same bits, or, on another machine, be equal up to rounding. Prints one
    line for each run. Nothing is changed.

    \b
    Examples:
      fedflat verify results/experiments/quick/digits/dirichlet-0.1/4-of-20/fedsam
      fedflat verify results/experiments/quick --rounds 5
      fedflat verify results/store/digits/dirichlet-0.1 --rounds 5 --first 12
    """
    started = time.perf_counter()
    keep_freed_memory()
    import torch

    from fedflat.analysis.provenance.verify import find, verify_run
    from fedflat.bench.host.torch_device import prepare_device
    from fedflat.bench.training.run_directory import RunDirectory

    @functools.cache
    def prepared(name: str) -> torch.device:
        return prepare_device(name, available_cores(), typer.echo)

    def device_of(run: RunDirectory) -> torch.device:
        on_cpu = str(run.provenance.get("device")).startswith("cpu")
        return prepared("cpu" if device == "auto" and on_cpu else device)

    runs, differing = dict.fromkeys(path for one in folder for path in find(one)), list[str]()
    for path in runs:
        verification = verify_run(path, rounds, device_of, first=first, trust=trust)
        typer.echo(str(verification))
        if verification.differs:
            differing.append(str(verification.about))
    if differing:
        raise UserError(f"{len(differing)} of {len(runs)} differ: {first_few(differing)}")
    typer.echo(resources_used(started))


def export(
    target: Annotated[
        list[str],
        typer.Argument(
            help="Targets of Snakemake, such as quick_table_accuracy, fedgf_figure_4, or an experiment: quick, or its "
            "YAML file.",
            metavar="TARGET...",
        ),
    ],
    experiments: OwnExperiments = None,
    set_: Set = None,
    models: Annotated[
        bool, typer.Option("--models", help="Include models and states, with which analyses can be repeated.")
    ] = False,
    reports: Annotated[
        bool,
        typer.Option(
            "--reports/--without-reports",
            help="Include the rendered tables and figures. Without them, the archive is smaller.",
        ),
    ] = True,
    results: Results = Path("results"),
    out: Annotated[
        Path | None, file_option("The archive to write. Default: in the current folder, the first TARGET and .zip.")
    ] = None,
) -> None:
    """Export results as one archive.

    The archive contains what the targets show, and what it is made of: runs with configuration, metrics, partition and
    provenance, tidy files, the files of the experiment, versions of libraries, checksums, and a README. Others render
    the tables and figures from it without training. Everything that the targets show must be computed. The metadata
    have the form RO-Crate 1.1.

    \b
    Examples:
      fedflat export quick_table_accuracy
      fedflat export quick --models --out quick-with-models.zip
      fedflat export fedgf_table_1 fedgf_figure_4a --without-reports --out fedgf.zip
    """
    from fedflat.analysis.provenance.export import export as write

    archive = out or Path(f"{Path(target[0]).stem}.zip")
    given = overrides_of(set_)
    contents = write(target, archive, results, given, experiments or (), models=models, reports=reports)
    typer.echo(f"{archive}: {len(contents.runs)} runs, {archive.stat().st_size / 2**10:,.0f} KiB")


def take_over(
    trust: Annotated[
        bool, typer.Option("--trust", help="Execute the user-defined code in the runs, as is needed to take them.")
    ] = False,
    results: Results = Path("results"),
) -> None:
    """Take results of earlier versions into the store.

    Moves the runs and analyses of RESULTS/runs and RESULTS/analysis to RESULTS/store, and lists them in
    RESULTS/experiments. Nothing is trained. What cannot be taken, such as unfinished runs, stays and is named. After an
    interruption, the same command goes on.

    \b
    Example:
      fedflat take-over --results results
    """
    from fedflat.analysis.store.take_over import is_earlier, report
    from fedflat.analysis.store.take_over import take_over as taken_over

    if not is_earlier(results):
        raise UserError(f"'{results}' has no results of earlier versions (expected: the folders runs, or analysis)")
    report(taken_over(results, trust=trust), typer.echo)


def import_(
    archive: Annotated[
        Path, typer.Argument(help="An archive of 'fedflat export'.", parser=file_path, metavar="ARCHIVE")
    ],
    out: Annotated[
        Path | None, folder_option("The new folder to unpack into. Default: results/imported/NAME for NAME.zip.")
    ] = None,
) -> None:
    """Unpack an archive of results.

    Checks that all members are plain files with the right checksums, and unpacks them into a new folder. The folder's
    README.md lists the commands that render the tables and figures. Nothing is executed.

    \b
    Example:
      fedflat import quick_table_accuracy.zip
    """
    from fedflat.analysis.provenance.archive import state_checksums, unpack
    from fedflat.analysis.store.take_over import is_earlier, report
    from fedflat.analysis.store.take_over import take_over as taken_over

    folder = out or Path("results") / "imported" / archive.stem
    count = unpack(archive, folder)
    if is_earlier(folder / "results"):
        report(taken_over(folder / "results"), typer.echo)
        state_checksums(folder)
    typer.echo(f"{count} files in '{folder}'; its README.md says how to render tables and figures")
