"""The report of a study as a folder: study.md, study.tex, tables as CSV, figures as PDF and PNG."""

from pathlib import Path

from fedflat.analysis.comparison.report_pages import write_pages
from fedflat.analysis.comparison.study.figures import figures
from fedflat.analysis.comparison.study.study import Study
from fedflat.analysis.comparison.study.tables import REPORT, tables
from fedflat.analysis.comparison.study.words import words
from fedflat.analysis.figures.base import TEXT_WIDTH


def write(study: Study, folder: Path, width: float = TEXT_WIDTH) -> Path:
    """Write all files; the pages are written last. `width` of figures in inches. Return study.md."""
    head = ["# Does flatness matter?", "", f"Data: {study.source}, {len(study.runs):,} runs.", ""]
    head += [f"- {sentence}" for sentence in words(study)]
    return write_pages(folder, REPORT, head, list(figures(study, width)), list(tables(study)), width)
