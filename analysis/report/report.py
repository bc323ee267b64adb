"""Render an experiment's report: the page that gathers its tables and figures."""

from pathlib import Path

from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.headline import headline
from fedflat.analysis.report.page import page
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.files.atomic import write_text


def render_page(requested: RequestedExperiment) -> Path:
    """Write the page that gathers all tables, then all figures; it says which figures have not been drawn.

    It links the interactive page if this exists.
    """
    requested.check_runs(requested.target)
    tables, figures = Tables(requested), Figures(requested)
    filled = [tables.filled(name) for name in tables.shown()]
    drawn = [figures.on_page(name) for name in figures.in_page_order()]
    file, explorer = requested.report_paths.page, requested.report_paths.explorer
    link = Path(explorer.name) if explorer.is_file() else None
    write_text(file, page(requested.experiment, headline(requested.tidy), filled, drawn, link))
    return file
