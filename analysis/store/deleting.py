"""Removes runs from the store, and says which experiments had them."""

import secrets
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from fedflat.analysis.analyses.found_runs import lists_in, runs_of_list
from fedflat.analysis.store.stored import StoredRun
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.left_out import leave_out
from fedflat.bench.files.locks import folder_lock
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.answers import forget


def delete(runs: Iterable[StoredRun], paths: ResultPaths) -> list[str]:
    """Remove runs, each by one rename first, so that none is left in parts; lines about those that another process
    uses, which stay."""
    left = []
    for run in runs:
        with folder_lock(run.place) as is_free:
            if not is_free:
                left.append(f"'{run.place}' is left: another process uses it")
                continue
            gone = run.place.with_name(f".{run.place.name}.replaced-{secrets.token_hex(4)}")
            try:
                run.place.rename(gone)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise UserError(f"cannot remove '{run.place}': {error.strerror}") from None
            shutil.rmtree(gone, ignore_errors=True)
        _remove_empty_folders(run.place.parent, paths.store)
    forget(paths)
    return left


def _remove_empty_folders(folder: Path, above: Path) -> None:
    with suppress(OSError):  # the first one that is not empty
        while folder != above:
            folder.rmdir()
            folder = folder.parent


def experiments_with(runs: Sequence[StoredRun], paths: ResultPaths) -> dict[str, int]:
    """How many of these runs each experiment lists, by its name; experiments without any are left out."""
    wanted, found = {run.place for run in runs}, dict[str, int]()
    for folder in sorted(paths.lists("").glob("*")):
        for file in lists_in(folder):
            try:
                count = sum(one.place in wanted for one in runs_of_list(file))
            except UserError as error:
                leave_out(file, error)
                continue
            if count:
                found[folder.name] = found.get(folder.name, 0) + count
    return found
