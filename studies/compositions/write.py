"""The report on compositions as a folder: compositions.md, compositions.tex, tables as CSV, the figure."""

from pathlib import Path

from fedflat.analysis.comparison.report_pages import write_pages
from fedflat.analysis.figures.base import TEXT_WIDTH
from studies.compositions import figure
from studies.compositions.evaluation import CompositionResults
from studies.compositions.tables import REPORT, tables
from studies.compositions.words import answer


def write(evaluation: CompositionResults, folder: Path, width: float = TEXT_WIDTH) -> Path:
    """Write all files; the pages are written last. `width` of the figure in inches. Return compositions.md."""
    head = [f"# Compositions on {evaluation.grid}"]
    for sentence in answer(evaluation):
        head += ["", sentence]
    return write_pages(folder, REPORT, head, [figure.draw(evaluation, width)], list(tables(evaluation)), width)
