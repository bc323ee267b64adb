"""Render a filled table as Markdown, LaTeX (booktabs) and HTML."""

import html as html_module
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fedflat.analysis.layouts.captions import Caption
from fedflat.analysis.published.numbers import PublishedNumber, quoted_from
from fedflat.analysis.tables.layout import Column
from fedflat.analysis.tables.table import ColumnSummary, Entry, PublishedEntry, Table
from fedflat.analysis.tables.tidy_csv import tidy_csv
from fedflat.analysis.verdicts.equivalence import Noise, Spread
from fedflat.analysis.verdicts.margins import rules
from fedflat.bench.files.text_table import escape_markdown, markdown_line, without_html
from fedflat.bench.files.text_table import markdown as markdown_table

_ARROWS = {"higher": "↑", "lower": "↓", "none": ""}

_GREEK = (
    "αβγδεηθκλμνπρστφψωΓΔΘΛΣΦΨΩ",
    "alpha beta gamma delta varepsilon eta theta kappa lambda mu nu pi rho sigma tau varphi psi omega "
    "Gamma Delta Theta Lambda Sigma Phi Psi Omega",
)
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"${character}$" for character in "<>|"},
    **{letter: f"$\\{name}$" for letter, name in zip(_GREEK[0], _GREEK[1].split(), strict=True)},
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "·": r"$\cdot$",
    "√": r"$\surd$",
    "∇": r"$\nabla$",
    "∞": r"$\infty$",
    "≈": r"$\approx$",
    "‖": r"$\Vert$",
    "−": r"$-$",
    "–": "--",
}
_WIDE = 30.0
"""Tables of more type sizes go over both columns of a page, one of which holds about 25."""
_NOTES_OF_PAGE, _NOTES_OF_COLUMN = 5000, 4000
"""About how many letters of notes fill a page, and a column of a two-column page."""
_NEGATIVE = re.compile(r"(?<![\w$-])-(?=\d)")
_INDEXED = re.compile(r"([α-ωΑ-Ω])_([A-Za-z0-9]+)")


def escape_latex(text: str) -> str:
    """Plain text for LaTeX: special characters escaped, symbols and indexed Greek (λ_max) in math mode."""
    parts = _INDEXED.split(text)  # text, letter, index, text, letter, index, ..., text
    plain = ["".join(_LATEX.get(character, character) for character in part) for part in parts[::3]]
    indexed = [
        f"{_LATEX.get(letter, letter).rstrip('$')}_{{\\mathrm{{{index}}}}}$"
        for letter, index in zip(parts[1::3], parts[2::3], strict=True)
    ]
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(plain, indexed, fillvalue="")))


def escape_html(text: str) -> str:
    """Plain text for HTML: special characters escaped, the index of indexed Greek (λ_max) lowered."""
    return _INDEXED.sub(r"\1<sub>\2</sub>", html_module.escape(text))


def _number(entry: Entry, decimals: int, plus_minus: str) -> str:
    """Mean ± std without marks or notes; empty for an entry without a mean."""
    if entry.mean is None:
        return ""
    mean = f"{entry.mean:.{decimals}f}"
    return mean if entry.std is None else f"{mean}{plus_minus}{entry.std:.{decimals}f}"


def _marked(entry: Entry, decimals: int, plus_minus: str, marks: dict[int, str], escape: Callable[[str], str]) -> str:
    number = _number(entry, decimals, plus_minus)
    if not number:
        return escape(entry.note)
    note = f" ({escape(entry.note)})" if entry.note else ""
    return marks.get(entry.place, "{}").replace("{}", number) + note


def _published(entry: PublishedEntry, plus_minus: str, escape: Callable[[str], str]) -> str:
    """The published number as it is printed, and the verdict; empty where nothing is published."""
    number = entry.number
    if number is None:
        return ""
    printed = "–" if number.value is None else f"{number.value:.{number.decimals}f}{'+' * number.censored}"
    std = "" if number.std is None else f"{plus_minus}{number.std:.{number.std_decimals}f}"
    doubt = "?" * (number.doubtful and number.value is not None)
    quoted = "q" * number.quoted
    verdict = entry.verdict.text(number.decimals)
    if verdict == "not judged":  # the doubt mark or the foot says why
        verdict = ""
    return f"{printed}{std}{quoted}{doubt} {escape(verdict)}".rstrip()


def _foot(table: Table) -> list[str]:
    """The paragraphs of the table's foot, and the meaning of the marks that occur in its published rows."""
    numbers = [entry.number for block in table.published for row in block for entry in row if entry.number]
    printed = [number for number in numbers if number.value is not None]
    quoted = _quoted(table, printed)
    occurs = {
        "? the printed number is doubtful": any(number.doubtful for number in printed),
        quoted: bool(quoted),
        "+ at least": any(number.censored for number in printed),
        "– the paper reports a failed run, or prints a dash": len(printed) < len(numbers),
    }
    marks = "; ".join(mark for mark, does in occurs.items() if does)
    return [*table.foot, *([f"In published rows: {marks}."] if marks else [])]


def _quoted(table: Table, printed: Sequence[PublishedNumber]) -> str:
    """The meaning of the mark of quoted numbers; empty if none is quoted."""
    sources = dict.fromkeys(quoted_from(number.note) for number in printed if number.quoted)
    if not sources:
        return ""
    runs = "" if table.quotations is None else ", and compared with runs of that paper's settings"
    return f"q quoted from {' and '.join(f'{source}' for source in sources)}{runs}"


@dataclass(frozen=True)
class _Line:
    """A line of a table's body: its title, its cells as text, and its kind (reproduced, published or summary)."""

    title: str
    cells: list[str]
    kind: str = "reproduced"


def _body(
    table: Table, plus_minus: str, marks: dict[int, str], escape: Callable[[str], str]
) -> Iterator[tuple[str, list[_Line]]]:
    """The header and the lines of each block: one line per method, followed by the published line, if there is one."""
    columns = table.layout.columns
    for b, (block, rows) in enumerate(zip(table.layout.blocks, table.entries, strict=True)):
        lines = []
        for m, (title, entries) in enumerate(zip(table.rows, rows, strict=True)):
            if not block.shows(table.layout.methods[m]):
                continue
            pairs = zip(entries, columns, strict=True)
            shown = [_marked(entry, column.decimals, plus_minus, marks, escape) for entry, column in pairs]
            lines.append(_Line(escape(title), shown))
            if table.published:
                published = [_published(entry, plus_minus, escape) for entry in table.published[b][m]]
                lines.append(_Line("published", published, "published"))
        if table.summaries:
            lines += [
                _Line(escape(title), [escape(cell) for cell in cells], "summary")
                for title, cells in _summary_lines(table.summaries[b], columns)
            ]
        yield escape(block.header), lines


def _summary_lines(
    summaries: tuple[ColumnSummary, ...], columns: tuple[Column, ...]
) -> Iterator[tuple[str, list[str]]]:
    """The titles and cells of the lines that compare whole columns; lines without content are left out."""
    orders = [summary.order for summary in summaries]
    lines = {
        "pairs in the published order in all / some / no seeds": ["" if o is None else str(o.counts) for o in orders],
        "Kendall's τ": ["" if o is None or o.tau is None else str(o.tau) for o in orders],
        "deviation s (degrees of freedom)": _deviations([summary.noise for summary in summaries], columns),
        "s of the runs for quoted numbers": _deviations([summary.quoted_noise for summary in summaries], columns),
    }
    for title, cells in lines.items():
        if any(cells):
            yield title, cells


def _deviations(noises: Sequence[Noise | None], columns: Sequence[Column]) -> list[str]:
    """The cells of a line of deviations; empty where none is known."""
    pairs = zip(noises, columns, strict=True)
    return ["" if noise is None else _deviation(noise.runs, column) for noise, column in pairs]


def _deviation(runs: Spread, column: Column) -> str:
    """The pooled deviation; that of logarithms in percent."""
    is_ratio = rules().margin(column.metric, column.form).percent is not None
    std = f"{100 * runs.std:.2g} %" if is_ratio else f"{runs.std:.{column.decimals}f}"
    return f"{std} ({runs.df:.1f})"


def markdown(table: Table) -> str:
    """The caption, one pipe table in which block headers are rows, the notes, and the foot."""
    columns = table.layout.columns
    marks = {1: "**{}**", 2: "<u>{}</u>"}
    header = ["Method", *(f"{escape_markdown(c.name)} {_ARROWS[c.direction]}".strip() for c in columns)]
    lines = [without_html(table.caption.whole), "", *markdown_table(header, (), right=range(1, len(header)))]
    for block, body in _body(table, " ± ", marks, escape_markdown):
        if block:
            lines.append(markdown_line([f"*{block}*", *("" for _ in columns)]))
        for line in body:
            title = line.title if line.kind == "reproduced" else f"*{line.title}*"
            lines.append(markdown_line([title, *line.cells]))
    lines += markdown_notes(table.caption)
    return "\n".join([*lines, *(part for paragraph in _foot(table) for part in ("", without_html(paragraph)))]) + "\n"


def markdown_notes(caption: Caption) -> list[str]:
    """The lines of a list with the notes of a caption; empty without notes."""
    return ["", *(f"- {without_html(note)}" for note in caption.notes)] if caption.notes else []


def html_notes(caption: Caption) -> str:
    """A list with the notes of a caption; empty without notes."""
    items = "".join(f"<li>{escape_html(note)}</li>" for note in caption.notes)
    return f'<ul class="notes">{items}</ul>\n' if items else ""


def _groups(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    """The groups of neighbouring columns, with their numbers of columns."""
    return [(group, len(list(members))) for group, members in itertools.groupby(columns, key=lambda c: c.group)]


def latex(table: Table) -> str:
    """A `table` environment, or a `table*` for a wide table. A table that does not fit the page is shrunk."""
    columns = table.layout.columns
    marks = {1: r"\textbf{{}}", 2: r"\underline{{}}"}
    names = (f"{escape_latex(c.header)} {escape_latex(_ARROWS[c.direction])}".strip() for c in columns)
    lines = []
    if any(column.group for column in columns):
        heads, rules, start = [""], [], 2
        for group, size in _groups(columns):
            heads.append(rf"\multicolumn{{{size}}}{{c}}{{{escape_latex(group)}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{start + size - 1}}}" if group else "")
            start += size
        lines += [ampersands(heads), "".join(rules)]
    lines.append(ampersands(["Method", *names]))
    for block, body in _body(table, r" $\pm$ ", marks, escape_latex):
        lines.append(r"\midrule")
        if block:
            lines.append(rf"\multicolumn{{{len(columns) + 1}}}{{l}}{{\textit{{{block}}}}} \\")
        for line in body:
            cells = [line.title, *(_NEGATIVE.sub("$-$", cell) for cell in line.cells)]
            lines.append(ampersands(cells if line.kind == "reproduced" else [rf"{{\scriptsize {c}}}" for c in cells]))
    label = "-".join(part for part in (table.experiment, table.name) if part)
    return latex_table(table.caption, label, f"l{'r' * len(columns)}", lines, _width(table), _foot(table))


def latex_table(
    caption: Caption, label: str, columns: str, lines: Sequence[str], width: float, foot: Sequence[str] = ()
) -> str:
    """A `table` environment, or a `table*` if it is wide, around the `lines` between the rules of a `tabular`.

    `columns`: their alignments; `width`: about how many type sizes they need; `foot`: further paragraphs for below the
    notes of the caption.
    """
    wide = width > _WIDE
    environment = "table*" if wide else "table"
    notes = " ".join(escape_latex(note) for note in caption.notes)
    below = [*([rf"\textit{{Notes.}} {notes}"] if notes else []), *(escape_latex(part) for part in foot)]
    of_notes = sum(map(len, below)) / (_NOTES_OF_PAGE if wide else _NOTES_OF_COLUMN)
    height = max(0.3, 0.85 - of_notes)  # the rest of a page is for the caption
    if below:
        below = [r"\par\smallskip\begin{minipage}{\linewidth}\footnotesize", "\n\\par\n".join(below), r"\end{minipage}"]
    parts = [
        r"% needs \usepackage{booktabs,adjustbox}",
        rf"\begin{{{environment}}}",
        r"\centering\setlength{\belowcaptionskip}{6pt}" + wide * r"\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\caption[{{{escape_latex(caption.title)}}}]{{{escape_latex(caption.whole)}}}",
        rf"\label{{tab:{latex_label(label)}}}",
        rf"\begin{{adjustbox}}{{max width=\linewidth, max totalheight={height:.2f}\textheight}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{adjustbox}",
        *below,
        rf"\end{{{environment}}}",
    ]
    return "\n".join(parts) + "\n"


def latex_label(name: str) -> str:
    """A name for a label, in which LaTeX allows few characters."""
    return re.sub(r"[^\w.-]", "-", name)


def ampersands(cells: Sequence[str]) -> str:
    """A row of a LaTeX table."""
    return " & ".join(cells) + r" \\"


def html(table: Table) -> str:
    """A `table` element without caption. `--em` is its width in type sizes, by which pages shrink it to the paper."""
    columns, escape = table.layout.columns, escape_html
    marks = {1: "<strong>{}</strong>", 2: "<u>{}</u>"}
    lines = [f'<table style="--em: {_width(table):.1f}">', "<thead>"]
    if any(column.group for column in columns):
        heads = (f'<th colspan="{size}" class="group">{escape(group)}</th>' for group, size in _groups(columns))
        lines.append(f"<tr><th></th>{''.join(heads)}</tr>")
    names = (f"<th>{escape(column.header)} {_ARROWS[column.direction]}</th>" for column in columns)
    lines += [f"<tr><th>Method</th>{''.join(names)}</tr>", "</thead>"]
    notes = {escape(entry.note) for block in table.entries for row in block for entry in row if entry.mean is None}
    for header, body in _body(table, " ± ", marks, escape):
        lines.append("<tbody>")
        if header:
            lines.append(f'<tr><th colspan="{len(columns) + 1}" class="block">{header}</th></tr>')
        for line in body:
            own = line.kind == "reproduced"
            cells = (f"<td{'' if own and cell not in notes else ' class=note'}>{cell}</td>" for cell in line.cells)
            lines.append(f"<tr><th{'' if own else ' class=note'}>{line.title}</th>{''.join(cells)}</tr>")
        lines.append("</tbody>")
    lines.append("</table>")
    return "\n".join([*lines, *(f"<p>{escape(paragraph)}</p>" for paragraph in _foot(table))]) + "\n"


def _width(table: Table) -> float:
    """About how many type sizes a table needs."""
    plain = {1: "{}", 2: "{}"}
    rows = [["Method", *(f"{column.header} {_ARROWS[column.direction]}" for column in table.layout.columns)]]
    rows += [[line.title, *line.cells] for _, body in _body(table, " ± ", plain, str) for line in body]
    return text_width(rows)


def text_width(rows: Sequence[Sequence[str]]) -> float:
    """About how many type sizes rows of cells need: the longest cell of each column, without wrapping."""
    return sum(0.65 * max(map(len, cells)) + 1.0 for cells in zip(*rows, strict=True))


FORMATS: dict[str, Callable[[Table], str]] = {"md": markdown, "tex": latex, "csv": tidy_csv}
