"""Runs that are in the same results under another experiment or label: they are taken, and nothing is trained again.

A taken run consists of hard links to the files of the other run, which no command ever changes in place. Log,
configuration and provenance are its own. So deleting or replacing one of the two runs leaves the other as it is.
"""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fedflat.bench.experiments.results import runs_folder
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.files.atomic import replacing, write_bytes
from fedflat.bench.files.csv_json import write_checked_json
from fedflat.bench.files.left_out import leave_out
from fedflat.bench.files.locks import folder_lock, lock_file
from fedflat.bench.host.progress import Progress
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.directories.changed_inputs import changed_input
from fedflat.bench.training.directories.run_files import check_models, readers
from fedflat.bench.training.directories.runs_by_identity import look_again, places_of
from fedflat.bench.training.directories.working_directory import locked_directory, publish, remove_stale
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.run_directory import CONFIG, LOG, PROVENANCE, RunDirectory, is_complete, is_finished

TAKEN_FROM = "taken_from"
"""The entry of provenance.json with the path of the run that was taken, relative to the folder of results."""

REPLACED = "it was replaced meanwhile"

WAITING_SECONDS = 0.5


@contextmanager
def take_shared(
    wanted: Sequence[tuple[RunConfig, Path]], progress: Progress, *, replace: bool = False
) -> Iterator[list[tuple[RunConfig, Path]]]:
    """Take the wanted runs, each with its folder, that other experiments have finished; yield the remaining ones.

    While the block trains these, no other process trains the same runs in an experiment of the same results: it waits,
    and then takes them. With `replace`, runs of another version of the code are not taken.
    """
    remaining = set[Path]()
    with ExitStack() as locks:
        # All processes take the locks in the same order, so none waits for another in a circle.
        for config, folder in sorted(wanted, key=lambda one: one[0].identity):
            with ExitStack() as lock:
                lock.enter_context(_alone(config, folder, progress))
                if not _is_taken(config, folder, progress, replace=replace):
                    remaining.add(folder)
                    locks.push(lock.pop_all())
        yield [(config, folder) for config, folder in wanted if folder in remaining]
        look_again()


def remove_lock(config: RunConfig, folder: Path) -> None:
    """Remove the lock of a process that was killed after it had published the run in `folder`."""
    runs = runs_folder(folder)
    if runs is not None and lock_file(runs / config.identity).exists():
        with suppress(OSError), folder_lock(runs / config.identity):
            pass


def shared_run(config: RunConfig, folder: Path, *, replace: bool = False) -> RunDirectory | None:
    """The first of `shared_runs`; None: there is none."""
    return next(shared_runs(config, folder, replace=replace), None)


def shared_runs(config: RunConfig, folder: Path, *, replace: bool = False) -> Iterator[RunDirectory]:
    """Finished runs that can be taken instead of training the run in `folder`; those of the present code come first.

    They are in other experiments, or have another label of the method. Their files are not checked. With `replace`, all
    are of the present code. A finished run that cannot be read is named and left out.
    """
    of_other_code = []
    for place in places_of(config.identity, folder):
        try:
            if not is_complete(place):
                continue
            run = RunDirectory(place)
            ours = run.of_this_code
            if run.identity != config.identity or not _is_computed_as(run, config):
                continue
        except UserError as error:  # damaged, or of another version
            leave_out(place, error)
            continue
        if ours:
            yield run
        else:
            of_other_code.append(run)
    yield from () if replace else of_other_code


def readable_run(config: RunConfig, folder: Path) -> RunDirectory | None:
    """The first of `shared_runs` whose configuration, tables and split can be read; others are named and left out."""
    for run in shared_runs(config, folder):
        try:
            for read in readers(run, models=False).values():
                read()
        except UserError as error:
            leave_out(run.path, error)
        else:
            return run
    return None


def _is_computed_as(run: RunDirectory, config: RunConfig) -> bool:
    """Whether a run was computed as the engine's settings require, which are not part of its identity."""
    choices = [run.provenance.get(name) for name in ("engine_at_start", "engine")]
    try:
        return all(EngineChoice.from_json(choice).agrees_with(config.engine) for choice in choices if choice)
    except ValueError:  # of an earlier version
        return False


@contextmanager
def _alone(config: RunConfig, folder: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of a run's identity in its folder of results; wait for another experiment that holds it.

    A `UserError` if another process trains the run in the same `folder`.
    """
    runs = runs_folder(folder)
    if runs is None:
        yield
        return
    place, here = runs / config.identity, folder.absolute().relative_to(runs).as_posix()
    with ExitStack() as lock:
        try:
            runs.mkdir(parents=True, exist_ok=True)
            waits = False
            while not lock.enter_context(folder_lock(place, here)):
                there = _content(lock_file(place))
                if there == here:
                    raise UserError(f"another process is training '{folder}'")
                if there and not waits:
                    progress(f"seed {config.seed}: waits for '{runs.name}/{there}', which another process trains")
                    waits = True
                time.sleep(WAITING_SECONDS)
        except OSError as error:
            what = "lock files in" if error.filename is None else "write to"
            raise UserError(f"cannot {what} '{runs}': {error.strerror}") from None
        yield


def _content(file: Path) -> str:
    """The text of a file; empty if another process, or another machine, has removed it."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""


def _is_taken(config: RunConfig, folder: Path, progress: Progress, *, replace: bool) -> bool:
    """Whether the run need not be trained: another process has finished it meanwhile, or it was taken now."""
    look_again()
    found = list(shared_runs(config, folder, replace=replace))
    if not found:
        return False
    with locked_directory(folder, config) as work:
        if not replace and is_finished(folder, config):
            return True
        if is_complete(work):  # it only has to be published
            return False
        for run in found:
            try:
                _link(run, config, work)
            except (UserError, OSError) as error:
                progress(f"seed {config.seed}: '{_place(run)}' is not taken: {error}")
                continue
            publish(work, folder)
            remove_stale(folder, progress)
            break
        else:
            return False
    progress(f"seed {config.seed}: taken from '{_place(run)}', which has the same configuration")
    return True


def _link(run: RunDirectory, config: RunConfig, work: Path) -> None:
    """Make a run's working directory a complete run with the files of another one; the configuration comes last.

    Settings of the engine remain those with which the run was computed. A `UserError` if the other run cannot be taken.
    """
    folder = run.path.stat()
    if RunDirectory(run.path).provenance != run.provenance:
        raise UserError(REPLACED)
    _check(run, config)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    about = {**run.provenance, TAKEN_FROM: _place(run)}
    write_checked_json(work / PROVENANCE, about)
    for file in readers(run):
        if file.name not in (PROVENANCE, CONFIG):
            _link_or_copy(file, work / file.relative_to(run.path))
    log = (run.path / LOG).read_bytes() if (run.path / LOG).is_file() else b""
    line = f"{time.strftime('%Y-%m-%d %H:%M:%S')},000 taken from '{_place(run)}'\n"
    write_bytes(work / LOG, log + line.encode())
    if not os.path.samestat(folder, run.path.stat()):
        raise UserError(REPLACED)
    own = config.model_copy(update={"engine": run.config.engine})
    write_checked_json(work / CONFIG, own.model_dump(mode="json"))


def _check(run: RunDirectory, config: RunConfig) -> None:
    """A `UserError` if a file of the run is damaged or missing, or if its data or model are not the present ones."""
    check_models(run)
    for read in readers(run).values():
        read()
    if (changed := changed_input(config, run.provenance)) is not None:
        raise UserError(f"{changed} are other ones than those with which it was trained")


def _place(run: RunDirectory) -> str:
    """The path of a run in its folder of results."""
    runs = runs_folder(run.path)
    assert runs is not None
    return run.path.relative_to(runs.parent).as_posix()


def _link_or_copy(file: Path, link: Path) -> None:
    link.parent.mkdir(exist_ok=True)
    try:
        os.link(file.resolve(), link)
    except OSError:  # such as a file system without hard links
        with replacing(link) as copy:
            shutil.copyfile(file, copy)
