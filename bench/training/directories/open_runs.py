"""Runs open for training: set up, locked against other processes, resumed, and tidied up after a failure."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import torch

from fedflat.bench.code.user_code import failure, line_of
from fedflat.bench.data.root import data_root
from fedflat.bench.engine.checkpoint import CHECKPOINTS
from fedflat.bench.experiments.data_sets import check_before_loading
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.stored_config import copy_name
from fedflat.bench.files.atomic import write_bytes
from fedflat.bench.host.memory import Budgets
from fedflat.bench.host.progress import Progress
from fedflat.bench.input.content import read_own, short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.current import Replace, current_run
from fedflat.bench.training.directories.working_directory import alone, publish, remove_stale, working_directory
from fedflat.bench.training.run_directory import is_complete
from fedflat.bench.training.run_setup import RunSetup
from fedflat.bench.training.training_run import AT_START, CLIENTS, TrainingRun


@contextmanager
def no_empty_folders(places: Sequence[Path]) -> Iterator[None]:
    """Remove the folders above these places that are new and still empty when the block ends."""
    new = {parent for place in places for parent in place.parents if not parent.exists()}
    try:
        yield
    finally:
        with suppress(OSError):  # the first one that is not empty
            for folder in sorted(new, key=lambda folder: len(folder.parts), reverse=True):
                folder.rmdir()


@contextmanager
def open_runs(
    wanted: Sequence[tuple[RunConfig, Path]],
    device: torch.device,
    progress: Progress,
    budgets: Budgets | None = None,
    *,
    replace: Replace = False,
) -> Iterator[list[TrainingRun]]:
    """Open the runs that have to be trained, each with its folder. Complete runs of killed processes are published.

    A run that another process trains is waited for. It is left as it is if it is current then (`current_run`).

    If training fails, working directories without a checkpoint are removed, and a failure in a user-defined file is
    raised as a `UserError` that names the line. `budgets` as for `train_runs`.
    """
    threads = torch.get_num_threads()
    with no_empty_folders([folder for _, folder in wanted]), ExitStack() as locks:
        works: dict[Path, Path] = {}
        runs: list[TrainingRun] = []
        try:
            left = _locked(wanted, locks, progress, replace=replace)
            setups = _set_ups([config for config, _ in left], device)
            for config, folder in left:
                works[folder] = working_directory(folder, config)
            for (config, folder), setup in zip(left, setups, strict=True):
                if is_complete(work := works[folder]):
                    for name in (*CHECKPOINTS, CLIENTS, AT_START):
                        (work / name).unlink(missing_ok=True)
                    publish(work, folder)
                    remove_stale(folder, progress)
                else:
                    _copy_user_files(config, work)
                    memory = budgets or _budgets(config, device, len(left))
                    runs.append(TrainingRun(setup, work, folder, progress, memory))
            _warn_of_data(runs, progress)
            yield runs
        except (Exception, SystemExit) as error:
            for run in runs:
                if run.work.exists():  # not published
                    run.log.exception("failed")
            _remove_without_progress(works.values())
            if (explained := failure_in_user_file(wanted[0][0], error)) is None:
                raise
            raise explained from None
        finally:
            for run in runs:
                run.close()
            torch.set_num_threads(threads)


def _locked(
    wanted: Sequence[tuple[RunConfig, Path]], locks: ExitStack, progress: Progress, *, replace: Replace
) -> list[tuple[RunConfig, Path]]:
    """The runs that have to be trained, now that no other process trains them; `locks` holds their locks.

    All processes take the locks in the same order, so none waits for another in a circle.
    """
    missing = set[Path]()
    for config, folder in sorted(wanted, key=lambda one: one[1]):
        with ExitStack() as lock:
            lock.enter_context(alone(folder, config, progress))
            if current_run(folder, config, replace=replace) is None:
                missing.add(folder)
                locks.push(lock.pop_all())
            else:
                progress(f"seed {config.seed}: another process has trained '{folder}', and it is taken")
    return [(config, folder) for config, folder in wanted if folder in missing]


def _set_ups(configs: Sequence[RunConfig], device: torch.device) -> list[RunSetup]:
    """The set-ups of runs with the same data set."""
    if configs:
        check_before_loading(configs[0], data_root())
    return [RunSetup.build(config, device) for config in configs]


def _warn_of_data(runs: Sequence[TrainingRun], progress: Progress) -> None:
    """Print, and write to the log of each run, what users must know of the data, which are the same for all runs."""
    warning = runs[0].config.dataset.warning(runs[0].setup.dataset) if runs else None
    if warning is not None:
        progress(warning)
        for run in runs:
            run.log.info(warning)


def _budgets(config: RunConfig, device: torch.device, runs: int) -> Budgets:
    """The memory for the client states of each run, if `runs` runs share it."""
    given = config.engine.client_memory
    if given is None:
        return Budgets.share(device, 0.25 / runs)
    return Budgets(device=given * 2**30 / runs, host=given * 2**30 / runs)


def _copy_user_files(config: RunConfig, work: Path) -> None:
    """Copy user-defined Python files byte for byte; a `UserError` if one was edited after the command had started."""
    for copy, own in config.code_files.items():
        source = read_own(own.file, own.kind)
        if short_hash(source) != own.code_hash:
            raise UserError(
                f"the {own.kind} '{own.file}' was edited after the command had started; start the command again"
            )
        write_bytes(work / copy_name(copy), source)


def failure_in_user_file(config: RunConfig, error: BaseException) -> UserError | None:
    """The error in one line that names the user-defined file that caused it; None if there is no such file.

    The cause is the file of a metric or of the model if the error was raised while its code was running, else the
    method's file.
    """
    if isinstance(error, UserError):
        return None
    files = config.code_files
    blamed = [own for name, own in files.items() if name == "method" or line_of(error, own.file) is not None]
    return failure(blamed[0].file, blamed[0].kind, error) if blamed else None


def _remove_without_progress(works: Iterable[Path]) -> None:
    """Remove the working directories from which no run can be resumed."""
    for work in works:
        if not (is_complete(work) or any((work / name).exists() for name in CHECKPOINTS)):
            shutil.rmtree(work, ignore_errors=True)
