"""The report of a comparison as a folder: report.md, report.tex and explore.html; tables (CSV), figures (PDF, PNG)."""

from collections.abc import Iterator
from pathlib import Path

from fedflat.analysis.comparison.compare import Comparison
from fedflat.analysis.comparison.explore import render_comparison
from fedflat.analysis.comparison.report import differences, points, profiles, ranks
from fedflat.analysis.comparison.report.tables import tables
from fedflat.analysis.comparison.report.words import about, of_setting, verdict
from fedflat.analysis.comparison.report_pages import PACKAGES, ReportFigure, latex_figure, markdown_figure, write_parts
from fedflat.analysis.comparison.report_table import ReportTable
from fedflat.analysis.comparison.statistics.costs import stored_costs
from fedflat.analysis.comparison.statistics.flatness import stored_measures
from fedflat.analysis.figures.base import TEXT_WIDTH
from fedflat.analysis.layouts.titles import setting_title
from fedflat.analysis.tables.formats import escape_latex
from fedflat.bench.files.atomic import write_text

_FIGURES_OF = {"verdicts": ("differences",), "ranking": ("ranking", "critical"), "profile": ("profiles",),
           "costs": ("costs",), "flatness": ("flatness",)}  # fmt: skip
"""The figures that follow a table."""


def figures(comparison: Comparison, width: float = TEXT_WIDTH) -> Iterator[ReportFigure]:
    """All figures for which the stored runs have the columns; `width` in inches."""
    yield differences.draw(comparison, width)
    yield ranks.draw_ranking(comparison, width)
    yield ranks.draw_critical(comparison, width)
    yield profiles.draw(comparison, width)
    if stored_costs(comparison.rows):
        yield points.draw_costs(comparison, width)
    if stored_measures(comparison.rows):
        yield points.draw_flatness(comparison, width)


def write(comparison: Comparison, folder: Path, width: float = TEXT_WIDTH) -> Path:
    """Write all files of the report; the pages are written last. Return report.md."""
    all_tables, all_figures = list(tables(comparison)), list(figures(comparison, width))
    write_parts(folder, all_tables, all_figures)
    drawn = {figure.name: figure for figure in all_figures}
    page = folder / "report.md"
    links = {"Report": page.name, "LaTeX": "report.tex"}
    render_comparison(comparison, folder / "explore.html", "\n".join(_summary(comparison)), links)
    write_text(folder / "report.tex", latex(comparison, all_tables, drawn, width))
    write_text(page, markdown(comparison, all_tables, drawn))
    return page


def markdown(comparison: Comparison, shown: list[ReportTable], drawn: dict[str, ReportFigure]) -> str:
    """The verdict, and all tables and figures."""
    lines = [f"# {_title(comparison)}", "", *_summary(comparison)]
    for table in shown:
        lines += ["", table.markdown().rstrip()]
        for name in _FIGURES_OF.get(table.name, ()):
            lines += ["", *markdown_figure(drawn[name])]
    return "\n".join(lines) + "\n"


def _summary(comparison: Comparison) -> list[str]:
    """The lines of the verdict, over all settings and for each one, and what was compared."""
    lines = [f"{sentence}\n" for sentence in verdict(comparison)]
    if comparison.scores.is_judged and len(comparison.scores.settings) > 1:
        lines += [
            f"- {setting_title(setting)}: {of_setting(comparison, setting)}." for setting in comparison.by_setting
        ]
        lines.append("")
    return [*lines, *(f"- {note}" for note in about(comparison))]


def latex(comparison: Comparison, shown: list[ReportTable], drawn: dict[str, ReportFigure], width: float) -> str:
    """The same as LaTeX, to be read by `\\input` from a paper; paths of figures are relative to this file's folder."""
    sentences = [*verdict(comparison), *(f"{_capital(note)}." for note in about(comparison))]
    lines = [PACKAGES, " ".join(map(escape_latex, sentences)), ""]
    for table in shown:
        lines.append(table.latex())
        lines += [latex_figure(drawn[name], width) for name in _FIGURES_OF.get(table.name, ())]
    return "\n".join(lines)


def _title(comparison: Comparison) -> str:
    return f"{comparison.titles[comparison.method]} and the {comparison.variant} baselines of {comparison.grid}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
