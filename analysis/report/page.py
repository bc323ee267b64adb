"""The report page: one static HTML file with all tables and figures, an inline style and relative links.

It prints whole: wide tables shrink to the paper, tables are not broken if they fit on a page, and figures stay with
their headings. On a phone, wide tables and figures scroll sideways within the page, and say so: a table by a shadow at
its edge, a figure in words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

import jinja2

from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.tables.formats import escape_html, html, html_notes, markdown_notes
from fedflat.analysis.tables.table import Table
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.results import ReportPaths
from fedflat.bench.files.text_table import without_html

_NARROW = 0.6
"""Figures up to this share of the text's width fit on a phone without scrolling."""


@dataclass(frozen=True)
class PageFigure:
    """A figure of the page; `files` are those that exist, relative to the page, and `share` is its printed width as a
    share of the text's."""

    name: str
    title: str
    caption: Caption
    files: tuple[Path, ...] = ()
    share: float = 1.0

    @property
    def drawn(self) -> Path:
        """The image on the page."""
        return ReportPaths().figure(self.name)[0]

    @property
    def is_drawn(self) -> bool:
        """Whether the image exists."""
        return self.drawn in self.files

    @property
    def is_wide(self) -> bool:
        """Whether it scrolls on a phone."""
        return self.share > _NARROW


def page(
    experiment: Experiment,
    headline: Sequence[str],
    tables: Sequence[Table],
    figures: Sequence[PageFigure],
    explorer: Path | None = None,
) -> str:
    """The whole page; `explorer`: the interactive page, relative to this one, if it exists."""
    return _template().render(
        title=f"FedFlat: {experiment.name}",
        description=experiment.description,
        headline=headline,
        tables=tables,
        figures=figures,
        explorer=explorer,
        alone=None,
    )


def table_page(table: Table) -> str:
    """A page with one table."""
    return _template().render(title=table.layout.title, alone=table, explorer=None)


def figure_markdown(figure: PageFigure) -> str:
    """One figure with its caption, as Markdown in the folder of its PNG."""
    title = without_html(figure.title)
    lines = [f"# {title}", "", f"![{title}]({quote(str(figure.drawn.name))})", "", without_html(figure.caption.text)]
    return "\n".join([*lines, *markdown_notes(figure.caption)]) + "\n"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters.update(indexed=escape_html, notes=html_notes, table=html, files=ReportPaths().table)
    return environment.get_template("page.html.j2")
