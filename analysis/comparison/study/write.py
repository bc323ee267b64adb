"""The report of a study as a folder: study.md, study.tex, tables as CSV, figures as PDF and PNG."""

from pathlib import Path

from analysis.comparison.figures.common import ReportFigure
from analysis.comparison.report.tables import ReportTable
from analysis.comparison.report.write import latex_figure
from analysis.comparison.study.figures import figures
from analysis.comparison.study.study import Study
from analysis.comparison.study.tables import REPORT, tables
from analysis.figures.base import TEXT_WIDTH
from analysis.figures.draw import save
from analysis.tables.formats import markdown_notes
from bench.files.atomic import write_text
from bench.files.csv_json import write_csv
from bench.files.text_table import without_html


def write(study: Study, folder: Path, width: float = TEXT_WIDTH) -> Path:
    """Write all files; the pages are written last. `width` of figures in inches. Return study.md."""
    all_tables, all_figures = list(tables(study)), list(figures(study, width))
    for table in all_tables:
        write_csv(folder / "tables" / f"{table.name}.csv", table.frame)
    for figure in all_figures:
        save(figure.figure, folder / "figures" / figure.name)
        write_csv(folder / "figures" / f"{figure.name}.csv", figure.frame)
    page = folder / "study.md"
    write_text(folder / "study.tex", _latex(all_tables, all_figures, width))
    write_text(page, _markdown(study, all_tables, all_figures))
    return page


def _markdown(study: Study, shown: list[ReportTable], drawn: list[ReportFigure]) -> str:
    lines = ["# Does flatness matter?", "", f"Data: {study.source}, {len(study.runs):,} runs."]
    for figure in drawn:
        caption = figure.caption
        lines += ["", f"![{caption.title}](figures/{figure.name}.png)", "", without_html(caption.whole)]
        lines += markdown_notes(caption)
    for table in shown:
        lines += ["", table.markdown().rstrip()]
    return "\n".join(lines) + "\n"


def _latex(shown: list[ReportTable], drawn: list[ReportFigure], width: float) -> str:
    """All figures and tables, to be read by `\\input`; paths of figures are relative to this file's folder."""
    lines = [r"% needs \usepackage{booktabs,adjustbox,graphicx}"]
    lines += [latex_figure(figure, width, REPORT) for figure in drawn]
    lines += [table.latex() for table in shown]
    return "\n".join(lines)
