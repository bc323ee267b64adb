"""Removes runs from the store, and says which experiments had them."""

import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from fedflat.analysis.analyses.found_runs import lists_in, runs_of_list
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.left_out import leave_out
from fedflat.bench.files.locks import folder_lock
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.answers import forget
from fedflat.bench.training.directories.working_directory import run_of


def delete(places: Iterable[Path], paths: ResultPaths) -> list[str]:
    """Remove runs, each by one rename first, so that none is left in parts; lines about those that another process
    uses, which stay."""
    left = []
    for place in places:
        run = run_of(place)
        gone = run.with_name(f".{run.name}.replaced-{secrets.token_hex(4)}")
        try:
            with folder_lock(run) as is_free:
                if not is_free:
                    left.append(f"'{place}' is left: another process uses it")
                    continue
                place.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _cannot_be_removed(place, error.strerror) from None
        _remove_empty_folders(place.parent, paths.store)
    forget(paths)
    return left


def check_removable(places: Iterable[Path]) -> None:
    """A `UserError` if this user may not remove one of these runs."""
    for place in places:
        if not os.access(place.parent, os.W_OK):
            raise _cannot_be_removed(place, "its folder is read-only")


def _cannot_be_removed(place: Path, reason: str | None) -> UserError:
    return UserError(f"cannot remove '{place}': {reason}")


def _remove_empty_folders(folder: Path, above: Path) -> None:
    with suppress(OSError):  # the first one that is not empty
        while folder != above:
            folder.rmdir()
            folder = folder.parent


def experiments_with(places: Sequence[Path], paths: ResultPaths) -> dict[str, int]:
    """How many of these runs each experiment lists, by its name; experiments without any are left out."""
    wanted, found = {*places}, dict[str, int]()
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
