"""Render a filled table as tidy CSV: one line per entry, with all digits."""

import csv
import io

from fedflat.analysis.tables.counterparts import Place
from fedflat.analysis.tables.table import PublishedEntry, Table
from fedflat.analysis.verdicts.orders import OrderOfMethods


def tidy_csv(table: Table) -> str:
    """One line per entry, unrounded. `source` is `run` for a mean, `run of fedlesam` for one of runs of another
    experiment; an entry without a mean says why in `note`.

    `gap`, `se` and `margin` are on the same `scale`: absolute, or log for margins in percent. `reading` is empty in
    columns of the paper's own setting.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    head = ["table", "row", "block", "column", "metric", "mean", "std", "n_seeds", "source", "note"]
    writer.writerow([*head, *(_PUBLISHED if table.published else ())])
    for b, (block, rows) in enumerate(zip(table.layout.blocks, table.entries, strict=True)):
        for m, (method, entries) in enumerate(zip(table.layout.methods, rows, strict=True)):
            if not block.shows(method):
                continue
            for c, (column, entry) in enumerate(zip(table.layout.columns, entries, strict=True)):
                source = "" if entry.mean is None else f"run{_of_quoted(table, (b, method, c))}"
                fields: list[str] = [table.name, method, block.header, column.name, column.metric]
                fields += [_exact(entry.mean), _exact(entry.std), str(entry.seeds), source, entry.note]
                if table.published:
                    fields.append("" if column.reading is None else column.reading.title)
                    fields += _published_fields(table.published[b][m][c], table.summaries[b][c].order, method)
                writer.writerow(fields)
    return stream.getvalue()


def _of_quoted(table: Table, place: Place) -> str:
    """The experiment of an entry whose number is quoted; empty for other entries."""
    quoted = table.quotations
    return "" if quoted is None or place not in quoted.cells else f" of {quoted.experiment.name}"


_PUBLISHED = (
    "reading", "published", "published_std", "published_note", "verdict", "why", "gap", "se", "df", "margin", "scale",
    "seeds_to_decide", "pairs_in_all_seeds", "pairs_in_some", "pairs_in_none", "tau", "tau_low", "tau_high",
)  # fmt: skip


def _published_fields(entry: PublishedEntry, order: OrderOfMethods | None, method: str) -> list[str]:
    """The fields of `_PUBLISHED` after `reading`: the entry's number and verdict, its method's pairs, and τ."""
    number, gap = entry.number, entry.verdict.gap
    fields = ["", "", ""] if number is None else [_exact(number.value), _exact(number.std), number.note]
    fields += [entry.verdict.kind, entry.verdict.why]
    if gap is None:
        fields += [""] * 6
    else:
        scale = "log" if gap.is_ratio else "absolute"
        fields += [_exact(gap.value), _exact(gap.error), _exact(gap.df), _exact(gap.margin), scale, _exact(gap.seeds)]
    fields += ["", "", ""] if order is None else [str(count) for count in order.of_method(method)]
    tau = None if order is None else order.tau
    return [*fields, *(["", "", ""] if tau is None else [_exact(tau.mean), _exact(tau.low), _exact(tau.high)])]


def _exact(number: float | None) -> str:
    """A number as text with all digits; empty for None."""
    return "" if number is None else repr(number)
