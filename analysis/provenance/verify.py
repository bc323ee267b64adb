"""Verifies finished runs: files, identity, data and partition, and rounds that are computed again. Changes nothing.

A run cannot prove all that it contains. So a verification names what was verified. Nothing verifies the seconds in
`times.csv`, what `run.log` says, and the metrics of rounds that are not computed again.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import torch

from fedflat.analysis.analyses.found_runs import lists_in, runs_of_list
from fedflat.analysis.provenance.differences import Differences
from fedflat.analysis.provenance.replay import Replay
from fedflat.analysis.provenance.verification import DifferenceError, Verification
from fedflat.bench.data.dataset import Dataset
from fedflat.bench.data.partitions.base import partition_hash
from fedflat.bench.data.root import data_root
from fedflat.bench.data.sources.base import Source, verify_cache
from fedflat.bench.experiments.results import METRICS, PARTITION
from fedflat.bench.experiments.stored_config import trust_code
from fedflat.bench.files.checksums import UNCHECKED, DamagedFileError
from fedflat.bench.files.csv_json import read_checked_csv
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.directories.open_runs import failure_in_user_file
from fedflat.bench.training.directories.run_files import (
    WITH_CHECKSUMS,
    check_models,
    has_models,
    has_only_final,
    readers,
)
from fedflat.bench.training.directories.working_directory import UNFINISHED
from fedflat.bench.training.run_directory import (
    CONFIG,
    FINAL,
    PROVENANCE,
    TIMES,
    TRAIN_AGAIN,
    RunDirectory,
    is_complete,
    partition_table,
)
from fedflat.bench.training.run_setup import RunSetup, load_dataset, split_of

Devices = Callable[[RunDirectory], torch.device]
"""Chooses the device on which rounds of a run are computed again."""


def find(folder: Path) -> list[Path]:
    """The run directories in a folder, or that lists in it name, or the folder itself if it is one.

    A run directory is found even if one of its files is missing; unfinished runs are left out. A `UserError` if there
    is none.
    """
    marks = [file for name in (CONFIG, PROVENANCE) for file in folder.rglob(name)]
    listed = [one.place for file in lists_in(folder) for one in runs_of_list(file)]
    runs = {one for one in (*(mark.parent for mark in marks), *listed) if not _is_unfinished(one)}
    if not runs:
        raise UserError(
            f"no finished run in '{folder}' (allowed: a run directory, or a folder with runs or lists of them)"
        )
    return sorted(runs)


def _is_unfinished(folder: Path) -> bool:
    """Whether a folder is the working directory of a run, or an old run that is being replaced, which is hidden."""
    return UNFINISHED in folder.name or folder.name.startswith(".")


def verify_run(
    path: Path, rounds: int, device: Devices, *, first: int | None = None, trust: bool = False
) -> Verification:
    """Verify a run; compute this number of its rounds again, from the `first` one as `Replay.rounds` explains.

    With `trust`, code in the run may be executed.
    """
    verification, threads = Verification(path), torch.get_num_threads()
    try:
        run = _checked_files(path, verification)
        if run is not None:
            if trust:
                trust_code(path)
            _verify(run, rounds, first, device, verification)
    finally:
        torch.set_num_threads(threads)
    return verification


def _checked_files(path: Path, verification: Verification) -> RunDirectory | None:
    """The run, after all its files have been read; None if one of them is missing or damaged."""
    if not is_complete(path):
        verification.differs.append(str(DamagedFileError(path / CONFIG, "it does not exist", TRAIN_AGAIN)))
        return None
    run = RunDirectory(path)
    read = readers(run)
    if not has_models(run):
        verification.unverified.append("models (none is stored)")
    files = Verification(path)
    UNCHECKED.difference_update(read)
    for file, reader in read.items():
        with files.of(str(file.relative_to(path))):
            reader()
    checked = [file for file in read if file.suffix in WITH_CHECKSUMS]
    without = [file for file in checked if file in UNCHECKED]
    if without == checked:  # of an earlier version
        verification.unverified.append(f"{len(without)} files without checksums")
    for file in without if without != checked else ():
        with files.of(file.name):
            raise DamagedFileError(file, "it has no checksum, but other files of the run have one", run.remedy)
    verification.differs += files.differs
    verification.unverified += files.unverified
    verification.verified.append(f"{len(files.verified)} files")
    return None if files.differs or files.unverified else run


def _verify(run: RunDirectory, rounds: int, first: int | None, device: Devices, verification: Verification) -> None:
    """Verify what intact files say."""
    with verification.of("identity"):
        _check_identity(run)
    if "identity" not in verification.verified:
        return
    if has_only_final(run):
        verification.unverified.append("states and local models (none is stored)")
    with verification.of("data"):
        _check_data(run)
    if "data" not in verification.verified:
        verification.unverified.append("partition and rounds, which need the data")
        return
    with verification.of("partition"):
        _check_partition(run)
    with verification.of("rounds") as found:
        found.append(_computed_again(run, rounds, first, device(run)))


def _check_identity(run: RunDirectory) -> None:
    """A `DamagedFileError` if the configuration does not have the run's identity, or if outcome or files do not fit."""
    config, metrics = run.config, run.metrics()
    done, last = len(metrics), metrics.iloc[-1]
    if metrics["round"].tolist() != list(range(1, done + 1)):
        raise DamagedFileError(run.path / METRICS, "it lacks rounds", run.remedy)
    if run.times()["round"].tolist() != metrics["round"].tolist():
        raise DamagedFileError(run.path / TIMES, f"it has other rounds than {METRICS}", run.remedy)
    ends = {"diverged": bool(last["diverged"]), "stopped": last.get("stopped") == 1, "finished": True}
    ended = next(outcome for outcome, is_so in ends.items() if is_so)
    if run.provenance["outcome"] != ended or (ended == "finished" and done != config.training.rounds):
        why = f"{run.provenance['outcome']}, but {METRICS} has {done} of {config.training.rounds} rounds, {ended}"
        raise DamagedFileError(run.path / PROVENANCE, why, run.remedy)
    if run.provenance.get("seed", config.seed) != config.seed:
        raise DamagedFileError(run.path / PROVENANCE, "its seed is not that of the configuration", run.remedy)
    if (run.path / FINAL).is_file() and not has_only_final(run):
        check_models(run)


@functools.lru_cache(maxsize=2)
def _data(source: Source, root: Path) -> Dataset:
    """A data set whose images agree with their hashes; they are read completely, once per process."""
    dataset = load_dataset(source, root)
    verify_cache(source.label, (dataset.train, dataset.test))
    return dataset


def _check_data(run: RunDirectory) -> None:
    """A `DifferenceError` if the run was trained on other data."""
    dataset = _data(run.config.dataset, data_root())
    there, here = run.provenance.get("data_hash"), dataset.content_hash()
    if there != here:
        raise DifferenceError(
            f"'{run.path / PROVENANCE}': the hash of the training and test data is {there}, and {here} if computed "
            f"again: the data of {dataset.name} have changed, or the file has; restore the data, or {run.remedy}"
        )


def _check_partition(run: RunDirectory) -> None:
    """A `DamagedFileError` if the stored split is not the one that the configuration and the seed give."""
    file, dataset = run.path / PARTITION, _data(run.config.dataset, data_root())
    split = split_of(run.config.partition, dataset, run.config.seed)
    if partition_hash(split) != run.provenance.get("partition_hash"):
        raise DamagedFileError(file, "the split that the configuration gives is another one", run.remedy)
    drawn, columns = partition_table(split, dataset.train.labels), ["client", "index", "label"]
    if not read_checked_csv(file, columns, run.remedy, whole=columns).equals(drawn):
        raise DamagedFileError(file, "its labels are not those of the images", run.remedy)


def _computed_again(run: RunDirectory, count: int, first: int | None, device: torch.device) -> str:
    """Compute rounds again, evaluate the final model again, and say in words what is equal.

    A `DifferenceError` if something differs that must be equal, or by more than rounding explains.
    """
    try:
        setup = RunSetup.build(run.config, device, run.split())
        replay, differences = Replay(run, setup), Differences(setup.objective.precision)
        rounds, done, again = replay.rounds(count, first), len(replay.metrics), []
        if rounds:
            start, last = rounds[0], rounds[-1]
            again.append(f"{f'rounds {start} to' if start < last else 'round'} {last} of {done}")
            replay.compute(rounds, differences)
        if (run.path / FINAL).is_file() and not run.diverged:
            again.append("the evaluation of the final model")
            replay.evaluate(differences)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        if (explained := failure_in_user_file(run.config, error)) is None:
            raise
        raise explained from None
    what, other = " and ".join(again) or "nothing", ", ".join(replay.reasons())
    if differences.same_bits:
        return f"{what} computed again with the same bits" + (f" ({other})" if other else "")
    if other and differences.equal_up_to_rounding:
        return f"{what} computed again, equal up to rounding ({differences.difference}; {other})"
    more = f", which is more than rounding explains ({other})" if other else ""
    raise DifferenceError(f"'{differences.place}': {differences.difference}{more}: {run.remedy}")
