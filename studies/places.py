"""Folders of the clone from which studies run."""

from pathlib import Path

CLONE = Path(__file__).parents[1]
DOCS = CLONE / "docs"
DETAILS = CLONE / "studies" / "pages"
"""Pages that say how the numbers of the pages in docs were measured, with all their tables; and the licences."""
