"""A filled table as Markdown, LaTeX (booktabs), HTML, and tidy CSV."""

import csv
import html as html_module
import io
import itertools
import re
from collections.abc import Callable

from analysis.tables import Column, Entry, Table

_ARROWS = {"higher": "↑", "lower": "↓", "none": ""}

_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "λ": r"$\lambda$",
    "ρ": r"$\rho$",
    "σ": r"$\sigma$",
    "Δ": r"$\Delta$",
}
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
    """Mean ± std without marks or notes; an entry without a number is its note alone."""
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


def _escape_markdown(text: str) -> str:
    return text.replace("|", "\\|")


def markdown(table: Table) -> str:
    """Caption, then one pipe table; block headers are rows."""
    columns = table.layout.columns
    marks = {1: "**{}**", 2: "<u>{}</u>"}
    header = ["Method", *(f"{_escape_markdown(c.name)} {_ARROWS[c.direction]}".strip() for c in columns)]
    lines = [table.caption, "", _pipes(header), _pipes(["---", *("---:" for _ in columns)])]
    for block, rows in zip(table.layout.blocks, table.entries, strict=True):
        if block.header:
            lines.append(_pipes([f"*{_escape_markdown(block.header)}*", *("" for _ in columns)]))
        for title, entries in zip(table.rows, rows, strict=True):
            shown = (
                _marked(entry, column.decimals, " ± ", marks, _escape_markdown)
                for entry, column in zip(entries, columns, strict=True)
            )
            lines.append(_pipes([_escape_markdown(title), *shown]))
    return "\n".join(lines) + "\n"


def _pipes(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _groups(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    """Neighbouring columns of the same group, and how many."""
    return [(group, len(list(members))) for group, members in itertools.groupby(columns, key=lambda c: c.group)]


def latex(table: Table) -> str:
    """A `table` environment (`table*` if it is wide) that needs the package booktabs."""
    columns = table.layout.columns
    marks = {1: r"\textbf{{}}", 2: r"\underline{{}}"}
    width = len(columns) + 1
    wide = len(columns) > 4  # more than one column of a two-column page holds
    environment = "table*" if wide else "table"
    lines = [
        "% needs \\usepackage{booktabs}",
        rf"\begin{{{environment}}}",
        r"\centering\footnotesize\setlength{\tabcolsep}{3pt}" if wide else r"\centering",
        rf"\caption{{{escape_latex(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
    ]
    if any(column.group for column in columns):
        heads, rules, start = [""], [], 2
        for group, size in _groups(columns):
            heads.append(rf"\multicolumn{{{size}}}{{c}}{{{escape_latex(group)}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{start + size - 1}}}" if group else "")
            start += size
        lines += [_ampersands(heads), "".join(rules)]
    names = (f"{escape_latex(c.header)} {escape_latex(_ARROWS[c.direction])}".strip() for c in columns)
    lines.append(_ampersands(["Method", *names]))
    for block, rows in zip(table.layout.blocks, table.entries, strict=True):
        lines.append(r"\midrule")
        if block.header:
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{escape_latex(block.header)}}}}} \\")
        for title, entries in zip(table.rows, rows, strict=True):
            shown = (
                _marked(entry, column.decimals, r" $\pm$ ", marks, escape_latex)
                for entry, column in zip(entries, columns, strict=True)
            )
            lines.append(_ampersands([escape_latex(title), *shown]))
    lines += [r"\bottomrule", r"\end{tabular}", rf"\end{{{environment}}}"]
    return "\n".join(lines) + "\n"


def _ampersands(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def html(table: Table) -> str:
    """A `<table>` without styles or caption."""
    columns, escape = table.layout.columns, escape_html
    marks = {1: "<strong>{}</strong>", 2: "<u>{}</u>"}
    lines = ["<table>", "<thead>"]
    if any(column.group for column in columns):
        heads = (f'<th colspan="{size}" class="group">{escape(group)}</th>' for group, size in _groups(columns))
        lines.append(f"<tr><th></th>{''.join(heads)}</tr>")
    names = (f"<th>{escape(column.header)} {_ARROWS[column.direction]}</th>" for column in columns)
    lines += [f"<tr><th>Method</th>{''.join(names)}</tr>", "</thead>"]
    for block, rows in zip(table.layout.blocks, table.entries, strict=True):
        lines.append("<tbody>")
        if block.header:
            lines.append(f'<tr><th colspan="{len(columns) + 1}" class="block">{escape(block.header)}</th></tr>')
        for title, entries in zip(table.rows, rows, strict=True):
            shown = "".join(
                f"<td{'' if entry.mean is not None else ' class=note'}>"
                f"{_marked(entry, column.decimals, ' ± ', marks, escape)}</td>"
                for entry, column in zip(entries, columns, strict=True)
            )
            lines.append(f"<tr><th>{escape(title)}</th>{shown}</tr>")
        lines.append("</tbody>")
    lines.append("</table>")
    return "\n".join(lines) + "\n"


def tidy_csv(table: Table) -> str:
    """One line per entry, unrounded: a number names its `source`, an entry without one says why in `note`."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["table", "row", "block", "column", "metric", "mean", "std", "n_seeds", "source", "note"])
    for block, rows in zip(table.layout.blocks, table.entries, strict=True):
        for method, entries in zip(table.layout.methods, rows, strict=True):
            for column, entry in zip(table.layout.columns, entries, strict=True):
                numbers = ["" if value is None else repr(value) for value in (entry.mean, entry.std)]
                source = "" if entry.mean is None else "run"
                writer.writerow(
                    [
                        table.name,
                        method,
                        block.header,
                        column.name,
                        column.metric,
                        *numbers,
                        entry.seeds,
                        source,
                        entry.note,
                    ]
                )
    return stream.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {"md": markdown, "tex": latex, "csv": tidy_csv}
