"""Folders of the clone from which studies run."""

from pathlib import Path

CLONE = Path(__file__).parents[1]
DOCS = CLONE / "docs"
