"""The folder of data sets on this machine. It has no effect on numbers, so it is not part of a configuration."""

import logging
import os
from pathlib import Path

from fedflat.bench.input.content import expanded
from fedflat.bench.input.errors import UserError

log = logging.getLogger("fedflat.data")

ENVIRONMENT = "FEDFLAT_DATA"


def data_root() -> Path:
    """The folder in the environment variable FEDFLAT_DATA; by default `data` in the current folder."""
    return checked_root(os.environ.get(ENVIRONMENT, "").strip() or "data", ENVIRONMENT)


def say_if_new(place: Path) -> None:
    """Log that the folder of data sets is new, before `place` in it is written: in another current folder, it is."""
    root = data_root()
    if not root.exists() and place.is_relative_to(root):
        log.info("a new folder of data sets: '%s' (%s names another one)", root.absolute(), ENVIRONMENT)


def checked_root(path: str, what: str) -> Path:
    """The folder of this path, which need not exist. Raises `UserError`, beginning with `what`, if it is a file."""
    root = expanded(path, what)
    if root.exists() and not root.is_dir():
        raise UserError(f"{what} = '{root}' is not a folder")
    return root
