"""Part of the Python API: a bar that shows how far a long call is."""

import sys
import warnings
from typing import Any


def progress_bar(name: str, total: int, unit: str, shown: bool | None) -> Any:
    """A bar of tqdm. `shown` None: on a terminal and in a notebook only."""
    if shown is None:
        shown = sys.stderr.isatty() or "ipykernel" in sys.modules
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")  # a notebook without ipywidgets gets a bar of text
        from tqdm.auto import tqdm  # noqa: PLC0415 - decides at its import whether this is a notebook
    return tqdm(total=total, desc=name, unit=f" {unit}s", disable=not shown)
