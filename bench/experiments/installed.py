"""Stored baselines that are installed with FedFlat.

A grid without a folder in results/baselines is read from the package. What is added to it begins a copy there.
"""

import shutil
import tempfile
from pathlib import Path

INSTALLED = Path(__file__).parents[2] / "baselines"
"""In a clone, a link to results/baselines."""


def where_stored(own: Path) -> Path:
    """The folder of a grid: `own`, such as results/baselines/quick, or else the installed one of this name."""
    return own if own.is_dir() or not (INSTALLED / own.name).is_dir() else INSTALLED / own.name


def stored_names(own: Path) -> list[str]:
    """The names of all grids in `own`, such as results/baselines, and of the installed ones."""
    return sorted({folder.name for place in (own, INSTALLED) for folder in place.glob("*/")})


def begin_as_copy(own: Path) -> None:
    """If `own` is missing, copy the installed folder of this name there, so that something is added to it."""
    if own.is_dir() or not (INSTALLED / own.name).is_dir():
        return
    own.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{own.name}.", dir=own.parent) as staged:
        copy = Path(staged) / own.name
        copy.mkdir()
        for file in (INSTALLED / own.name).iterdir():
            shutil.copyfile(file, copy / file.name)
        copy.rename(own)
