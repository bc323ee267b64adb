"""Where data sets lie on this machine. It decides no numbers, so no configuration holds it."""

import os
from pathlib import Path

ENVIRONMENT = "FEDFLAT_DATA"


def data_root() -> Path:
    """The folder that the environment variable FEDFLAT_DATA names; `data` in the current folder without it."""
    return Path(os.environ.get(ENVIRONMENT, "").strip() or "data").expanduser()
