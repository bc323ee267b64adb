"""Where the store has an analysis of a run, and the list of those that an experiment has in a cell.

A file has the rows of one run: identity, seed, the columns of the analysis, `definition`, and how it was computed. Its
name ends with a hash of the options and of the runs with which the run is compared. It lies with its run, so it goes
when the run is replaced. A list is as that of runs: outdated if it would be another one now, or a file is missing; its
column `content` is another one when the analysis was computed again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedflat.analysis.analyses.analysed_run import name_among
from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.analyses.found_runs import CellRuns, results_of
from fedflat.analysis.analyses.provenance import name_value_pairs
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.experiments.run_config import HASH_DIGITS
from fedflat.bench.files.checksums import DamagedFileError
from fedflat.bench.files.lists import read_list, write_list
from fedflat.bench.input.content import short_hash

FOLDER = "analyses"
"""The folder of a run directory."""

COLUMNS = ("seed", "identity", "path", "content")


def stored_file(run: Path, analysis: Analysis, name: str = "", compared: Sequence[tuple[str, str]] = ()) -> Path:
    """The file of an analysis of the run in a directory.

    `compared`: labels and identities of the runs with which it is compared; `name`: the run's among them.
    """
    parts = [*analysis.inputs().items(), *([(name, ""), *compared] if compared else [])]
    return run / FOLDER / f"{analysis.name}-{short_hash(name_value_pairs(parts), digits=HASH_DIGITS)}.csv"


def copy_of_code(file: Path) -> Path:
    """The copy of a user's file that has computed the analysis in `file`."""
    return file.with_suffix(".py")


def write_analysis_list(list_file: Path, runs: CellRuns, files: Mapping[int, Path]) -> None:
    """Write the list of the files of an analysis, which are given by seed."""
    results = results_of(list_file)
    write_list(list_file, [list_row(results, seed, runs.by_seed[seed].identity, file) for seed, file in files.items()])


def list_row(results: Path, seed: int, identity: str, file: Path) -> Mapping[str, str]:
    """A row of a list."""
    content = short_hash(file.read_bytes())
    return {"seed": str(seed), "identity": identity, "path": file.relative_to(results).as_posix(), "content": content}


def wanted_files(
    paths: ResultPaths, experiment: Experiment, analysis: Analysis, address: CellAddress
) -> list[tuple[int, str, Path]]:
    """Seed, identity and file of each run of a cell that an analysis selects; the files need not exist."""
    runs, labels = {run.seed: run for run in experiment.cell(address.path).runs}, analysis.compared_labels()
    cells = [experiment.compared_cell(address, label) for label in labels]
    partitions = [cell.setting.partition for cell in cells]
    name = name_among((address.method, address.setting.partition), labels, partitions)
    identities = [{run.seed: run.identity for run in experiment.cell(cell.path).runs} for cell in cells]
    return [
        (
            seed,
            runs[seed].identity,
            stored_file(
                paths.run(runs[seed]),
                analysis,
                name,
                [(label, there[seed]) for label, there in zip(labels, identities, strict=True)],
            ),
        )
        for seed in analysis.selected_seeds(list(runs))
    ]


def is_current(paths: ResultPaths, file: Path, wanted: Sequence[tuple[int, str, Path]]) -> bool:
    """Whether the list in `file` has the `wanted_files` as they are now."""
    if not file.is_file() or not all(there.is_file() for *_, there in wanted):
        return False
    try:
        return read_list(file, COLUMNS, "") == [list_row(paths.root, *one) for one in wanted]
    except DamagedFileError:
        return False
