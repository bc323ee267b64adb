"""Where data sets lie on this machine. It decides no numbers, so no configuration holds it."""

import os
from pathlib import Path

from bench.input.content import expanded
from bench.input.errors import UserError

ENVIRONMENT = "FEDFLAT_DATA"


def data_root() -> Path:
    """The folder that the environment variable FEDFLAT_DATA names; `data` in the current folder without it."""
    return checked_root(os.environ.get(ENVIRONMENT, "").strip() or "data", ENVIRONMENT)


def checked_root(path: str, what: str) -> Path:
    """The folder of this path, which need not exist yet; a `UserError` that begins with `what` if it cannot be one."""
    root = expanded(path, what)
    if root.exists() and not root.is_dir():
        raise UserError(f"{what} = '{root}' is no folder")
    return root
