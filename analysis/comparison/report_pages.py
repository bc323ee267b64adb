"""The files of a report: tables as CSV, figures as PDF, PNG and CSV, and pages in Markdown and LaTeX."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from fedflat.analysis.comparison.report_table import ReportTable
from fedflat.analysis.figures.base import TEXT_WIDTH
from fedflat.analysis.figures.draw import save
from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.tables.formats import escape_latex, latex_label, markdown_notes
from fedflat.bench.files.atomic import write_text
from fedflat.bench.files.csv_json import write_csv
from fedflat.bench.files.text_table import without_html

PACKAGES = r"% needs \usepackage{booktabs,adjustbox,graphicx}"
"""The first line of a page in LaTeX."""


@dataclass(frozen=True)
class ReportFigure:
    """A figure with its name, caption, and the frame that it draws."""

    name: str
    caption: Caption
    frame: pd.DataFrame
    figure: Figure


def write_pages(
    folder: Path,
    report: str,
    head: Sequence[str],
    figures: Sequence[ReportFigure],
    tables: Sequence[ReportTable],
    width: float,
) -> Path:
    """Write all files of a report whose pages show first the lines of `head`, then all figures, then all tables.

    `report`: the name of the pages, and the beginning of labels in LaTeX; `width` of figures in inches. The pages are
    written last. Return the page in Markdown.
    """
    write_parts(folder, tables, figures)
    page = folder / f"{report}.md"
    lines = [PACKAGES, *(latex_figure(figure, width, report) for figure in figures), *(t.latex() for t in tables)]
    write_text(folder / f"{report}.tex", "\n".join(lines))
    lines = [*head]
    for figure in figures:
        lines += ["", *markdown_figure(figure)]
    for table in tables:
        lines += ["", table.markdown().rstrip()]
    write_text(page, "\n".join(lines) + "\n")
    return page


def write_parts(folder: Path, tables: Iterable[ReportTable], figures: Iterable[ReportFigure]) -> None:
    """Write the tables and figures themselves, and the data behind them."""
    for table in tables:
        write_csv(folder / "tables" / f"{table.name}.csv", table.frame)
    for figure in figures:
        save(figure.figure, folder / "figures" / figure.name)
        write_csv(folder / "figures" / f"{figure.name}.csv", figure.frame)


def markdown_figure(figure: ReportFigure, folder: str = "figures") -> Iterator[str]:
    """The lines of a figure with its caption and notes; its PNG file is in a folder, relative to the page."""
    caption = figure.caption
    yield from (f"![{caption.title}]({folder}/{figure.name}.png)", "", without_html(caption.whole))
    yield from markdown_notes(caption)


def latex_figure(figure: ReportFigure, width: float, report: str = "compare") -> str:
    """A `figure` environment, or a `figure*` for a wide figure; `report`: the beginning of its label.

    Paths of figures are relative to the folder of the page.
    """
    environment = "figure*" if width > TEXT_WIDTH / 2 else "figure"
    caption = figure.caption
    notes = " ".join(map(escape_latex, caption.notes))
    lines = [
        rf"\begin{{{environment}}}",
        r"\centering",
        rf"\includegraphics[width=\linewidth]{{figures/{figure.name}.pdf}}",
        rf"\caption[{{{escape_latex(caption.title)}}}]{{{escape_latex(caption.whole)}}}",
        rf"\label{{fig:{latex_label(f'{report}-{figure.name}')}}}",
        *(
            [rf"\par\smallskip\begin{{minipage}}{{\linewidth}}\footnotesize \textit{{Notes.}} {notes}\end{{minipage}}"]
            if notes
            else []
        ),
        rf"\end{{{environment}}}",
    ]
    return "\n".join(lines) + "\n"
