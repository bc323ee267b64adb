"""Stored baselines that are installed with FedFlat.

A grid without stored runs in results/baselines is read from the package. What is added to it begins a copy there.
"""

import shutil
import tempfile
from pathlib import Path

from fedflat.bench.input.errors import UserError, first_few

INSTALLED = Path(__file__).parents[2] / "baselines"
"""In a clone, a link to results/baselines."""

RUNS = "runs.csv"
"""The file of a grid that is written last: a folder without it has no stored runs."""


def where_stored(own: Path) -> Path:
    """The folder of a grid: `own`, such as results/baselines/quick, or else the installed one of this name."""
    return own if _has_runs(own) or not _has_runs(INSTALLED / own.name) else INSTALLED / own.name


def _has_runs(folder: Path) -> bool:
    return (folder / RUNS).is_file()


def stored_names(own: Path) -> list[str]:
    """The names of all grids in `own`, such as results/baselines, and of the installed ones."""
    return sorted({folder.name for place in (own, INSTALLED) for folder in place.glob("*/")})


def begin_as_copy(own: Path) -> None:
    """If `own` has no stored runs, copy the installed folder of this name there, so that something is added to it.

    A `UserError` if `own` has other files.
    """
    if where_stored(own) == own:
        return
    if own.is_dir() and (left := sorted(file.name for file in own.iterdir())):
        raise UserError(f"'{own}' has {first_few(left)}, but no {RUNS}: move them away, so that a copy can begin there")
    own.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{own.name}.", dir=own.parent) as staged:
        copy = Path(staged) / own.name
        copy.mkdir()
        for file in (INSTALLED / own.name).iterdir():
            shutil.copyfile(file, copy / file.name)
        copy.rename(own)
