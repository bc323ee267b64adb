"""The report page: one static HTML file with all tables and figures, an inline style and relative links.

It prints whole: wide tables shrink to the paper, tables are not broken if they fit on a page, and figures stay with
their headings. On a phone, wide tables and figures scroll sideways within the page, and say so: a table by a shadow at
its edge, a figure in words.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.tables.formats import escape_html, html_notes, markdown_notes
from fedflat.analysis.tables.formats import html as html_table
from fedflat.analysis.tables.table import Table
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.results import ReportPaths
from fedflat.bench.files.text_table import without_html

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #5c6370; --line: #d9dce1; --paper: #fff;
  --link: #0b5fa5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --soft: #a3a9b3; --line: #3a3f47; --paper: #17191c; --link: #7db8ec; }
  img { background: #fff; border-radius: 4px; }
}
body { max-width: 72rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin-bottom: .25rem; }
h2 { font-size: 1.2rem; margin: 3rem 0 .75rem; }
a { color: var(--link); }
.lead, .files, td.note { color: var(--soft); }
nav ul { padding: 0; list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums;
  border-top: 2px solid var(--ink); border-bottom: 2px solid var(--ink); }
th, td { padding: .25rem .8rem; text-align: right; white-space: nowrap; font-weight: 400; }
th:first-child { text-align: left; }
thead th { font-weight: 600; }
th.group { text-align: center; }
tbody { border-top: 1px solid var(--line); }
tbody tr:hover td, tbody tr:hover th { background: color-mix(in srgb, var(--ink) 5%, transparent); }
th.block { font-style: italic; color: var(--soft); padding-top: .6rem; }
td strong { font-weight: 700; }
td.note { font-style: italic; }
figure { margin: 0; }
img { display: block; width: calc(100% * var(--share)); max-width: 100%; height: auto; }
figcaption, .caption { font-size: .95rem; max-width: 48rem; margin: .5rem 0; }
.notes { font-size: .85rem; max-width: 54rem; padding-left: 1.1rem; color: var(--soft); }
.files { font-size: .85rem; }
h1, h2, p, li { overflow-wrap: break-word; }
@media screen and (max-width: 40rem) {
  body { padding: 1rem .75rem 2rem; }
  nav ul { display: block; }
  nav li { padding: .2rem 0; }
  th, td { padding: .3rem .5rem; }
  th:first-child:not(.block) { position: sticky; left: 0; background: var(--paper); }
  .scroll img { max-width: none; width: calc(38rem * var(--share)); }
  figure.wide::before { content: "Wider than the screen: scroll sideways →"; color: var(--soft);
    font-size: .85rem; }
  .scroll { background: linear-gradient(to left, var(--paper) 30%, transparent) local right / 3rem 100% no-repeat,
    linear-gradient(to left, var(--soft), transparent) right / 1rem 100% no-repeat; }
}
@media print {
  @page { margin: 1.5cm; }
  :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --link: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav, .files { display: none; }
  h2 { margin-top: 1.5rem; break-after: avoid; }
  .scroll { overflow: visible; container-type: inline-size; break-before: avoid; }
  table { font-size: min(9pt, calc(100cqw / var(--em))); }
  th, td { padding: .15em .5em; }
  thead { display: table-header-group; }
  tr, img, figure, li, .caption, figcaption, table { break-inside: avoid; }
  tr:has(th.block) { break-after: avoid; }
  figcaption, .caption { font-size: 9pt; margin: .3rem 0; max-width: none; }
  .notes { columns: 2; column-gap: 1.5em; margin: .3rem 0; font-size: 7.5pt; line-height: 1.35; break-before: avoid; }
  img { width: calc(88% * var(--share)); max-height: 17cm; object-fit: contain; object-position: left;
    border-radius: 0; }
}
"""


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


def page(
    experiment: Experiment,
    headline: Sequence[str],
    tables: Sequence[Table],
    figures: Sequence[PageFigure],
    explorer: Path | None = None,
) -> str:
    """The whole page; `explorer`: the interactive page, relative to this one, if it exists."""
    titles = [(_url(f"table-{table.name}"), table.layout.title) for table in tables]
    titles += [(_url(f"figure-{figure.name}"), figure.title) for figure in figures]
    links = "".join(f'<li><a href="#{anchor}">{html.escape(title)}</a></li>' for anchor, title in titles)
    if explorer is not None:
        links += f'<li><a href="{_url(explorer)}">Interactive page</a></li>'
    lead = "".join(f'<p class="lead">{html.escape(line)}</p>' for line in headline)
    body = [_table(table) for table in tables] + [_figure(figure) for figure in figures]
    return _document(
        f"FedFlat: {experiment.name}",
        f"<p>{html.escape(experiment.description)}</p>\n{lead}\n<nav><ul>{links}</ul></nav>\n{''.join(body)}",
    )


def table_page(table: Table) -> str:
    """A page with one table."""
    return _document(table.layout.title, _shown(table))


def figure_markdown(figure: PageFigure) -> str:
    """One figure with its caption, as Markdown in the folder of its PNG."""
    title = without_html(figure.title)
    lines = [f"# {title}", "", f"![{title}]({_url(figure.drawn.name)})", "", without_html(figure.caption.text)]
    return "\n".join([*lines, *markdown_notes(figure.caption)]) + "\n"


def _document(title: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
{body}</body>
</html>
"""


def _table(table: Table) -> str:
    files = _links(ReportPaths().table(table.name))
    return (
        f'<section id="{_url(f"table-{table.name}")}">\n<h2>{html.escape(table.layout.title)}</h2>\n'
        f"{_shown(table)}{files}</section>\n"
    )


def _shown(table: Table) -> str:
    caption = f'<p class="caption">{escape_html(table.caption.text)}</p>\n'
    return f'{caption}<div class="scroll">\n{html_table(table)}</div>\n{html_notes(table.caption)}'


def _figure(figure: PageFigure) -> str:
    title = html.escape(figure.title)
    if figure.drawn in figure.files:
        picture = f'<img src="{_url(figure.drawn)}" alt="{title}">'
        image = f'<div class="scroll" style="--share: {figure.share:.2f}">{picture}</div>'
        files = _links(figure.files)
    else:
        image, files = '<p class="lead">Not drawn yet.</p>', ""
    wide = ' class="wide"' if files and figure.share > _NARROW else ""
    return (
        f'<section class="figure" id="{_url(f"figure-{figure.name}")}">\n<h2>{title}</h2>\n<figure{wide}>{image}\n'
        f"<figcaption>{escape_html(figure.caption.text)}</figcaption></figure>\n{html_notes(figure.caption)}{files}"
        "</section>\n"
    )


def _links(files: Sequence[Path]) -> str:
    links = " · ".join(f'<a href="{_url(file)}">{file.suffix.removeprefix(".")}</a>' for file in files)
    return f'<p class="files">{links}</p>\n'


def _url(name: str | Path) -> str:
    """A relative path or an anchor for an attribute: names of layouts may have any characters."""
    return quote(str(name))
