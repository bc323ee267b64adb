"""The paragraphs under a table with published numbers: the order of the methods, the verdicts, and their rule."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from fedflat.analysis.layouts.quantities import quantity
from fedflat.analysis.published.numbers import PublishedNumber
from fedflat.analysis.tables.counterparts import Reading
from fedflat.analysis.tables.layout import Column
from fedflat.analysis.tables.table import Table
from fedflat.analysis.verdicts.equivalence import MOST_SEEDS, Noise
from fedflat.analysis.verdicts.margins import Margin, rules
from fedflat.analysis.verdicts.orders import PairCounts
from fedflat.analysis.verdicts.verdict import ONE_SEED, PAPERS_NOISE, Verdict, counts
from fedflat.bench.experiments.experiment import Experiment

_DECIDED = ("agrees", "differs", "inconclusive")
_MOST = 8
"""How many departures a foot lists."""

_OF_FORM = {
    "values": "{}",
    "multiples": "multiples of {}",
    "gains": "gains in {}",
    "gains_in_percent": "gains in {} in percent",
}


def foot(table: Table, experiment: Experiment, paper: str) -> tuple[str, ...]:
    """The paragraphs under a table of this paper."""
    if experiment.scale != "paper":
        return ("Nothing is judged at this scale.",)
    own, readings = _by_reading(table)
    verdicts = [entry.verdict for block in table.published for row in block for entry in row]
    paragraphs = [
        _with_meaning_of_tau(_orders(table, own), table),
        f"Verdicts: {_counts(table, own)}.{_meaning_of_censored(verdicts)}",
        *(_reading(table, reading, of_reading) for reading, of_reading in readings.items()),
        *_settings(table),
    ]
    if any(verdict.kind in _DECIDED for verdict in verdicts):
        paragraphs += [" ".join(_rule(verdicts)), " ".join(_margins(table)), *_noise(table, paper)]
    if experiment.report is not None:
        paragraphs.append(f"The reported value is the requested one (report={experiment.report}), not the paper's.")
    return tuple(paragraph for paragraph in paragraphs if paragraph)


def _meaning_of_censored(verdicts: list[Verdict]) -> str:
    """What the verdict means, if it occurs."""
    if all(verdict.kind != "censored" for verdict in verdicts):
        return ""
    return " Censored: our runs or those of the paper did not reach the target, so that there is no gap."


def _by_reading(table: Table) -> tuple[list[int], dict[Reading, list[int]]]:
    """The columns of the paper's own setting, and those of each reading."""
    own: list[int] = []
    readings: dict[Reading, list[int]] = defaultdict(list)
    for c, column in enumerate(table.layout.columns):
        (own if column.reading is None else readings[column.reading]).append(c)
    return own, readings


def _reading(table: Table, reading: Reading, columns: list[int]) -> str:
    """What the columns of a reading show, with their own counts."""
    of_runs = [
        f"Their runs {what} ({', '.join(keys)})."
        for what, keys in (
            ("depart from the paper on purpose", reading.departs),
            ("have another value where the paper says nothing", reading.unstated),
        )
        if keys
    ]
    what = "reading" if of_runs else "measurement"
    parts = [
        f"Columns of another {what}, not counted above: {reading.title}.",
        *(of_runs or ["The runs are the same."]),
        f"Their verdicts: {_counts(table, columns)}.",
        _orders(table, columns),
    ]
    return " ".join(part for part in parts if part)


def _counts(table: Table, columns: list[int]) -> str:
    """The number of verdicts of each kind in these columns."""
    return counts(row[c].verdict for block in table.published for row in block for c in columns)


def _orders(table: Table, columns: list[int]) -> str:
    """The number of pairs of methods in the printed order, over these columns; empty if there are none."""
    orders = [block[c].order for block in table.summaries for c in columns]
    found = [order.counts for order in orders if order is not None]
    if not found:
        return ""
    total = PairCounts(*(sum(part) for part in zip(*found, strict=True)))
    text = (
        f"Order of the methods: of {sum(total)} pairs of methods with different published numbers, {total.in_all} have "
        f"the published order in all seeds, {total.in_some} in some and {total.in_none} in none."
    )
    numbers = (row[c].number for block in table.published for row in block for c in columns)
    if any(number is not None and number.quoted for number in numbers):
        text += " Quoted numbers are compared with quoted ones only, because the papers' settings differ."
    return text


def _with_meaning_of_tau(text: str, table: Table) -> str:
    """The text, and what the table's lines with τ mean, if it has any."""
    if not any(one.order is not None and one.order.tau for block in table.summaries for one in block):
        return text
    meaning = (
        "Kendall's τ is 1 for the published order and −1 for its reverse; the table shows its mean over the seeds "
        "with a 95 % interval (none if all seeds have the same τ)."
    )
    return f"{text} {meaning}".strip()


def _settings(table: Table) -> Iterator[str]:
    """Where entries depart from the paper, and where they differ in what the paper does not state."""
    shown = [entry.fairness for block in table.published for row in block for entry in row if entry.number is not None]
    found = Counter(departure.text for fairness in shown for departure in fairness.departures)
    if found:
        yield f"Departs from the paper: {_most(found)}."
    silent = [one for fairness in shown if fairness.is_fair for one in fairness.silent]
    for where, of_counts in (
        ("Other choices where the paper says nothing", False),
        ("Other values than the paper's, on which counts do not depend", True),
    ):
        if of_these := Counter(one.text for one in silent if one.of_counts == of_counts):
            yield f"{where}: {_most(of_these)}."


def _most(found: Counter[str]) -> str:
    """The most frequent texts, each with its number of entries."""
    texts = [f"{text}, in {count} {'entry' if count == 1 else 'entries'}" for text, count in found.most_common(_MOST)]
    more = len(found) - len(texts)
    return "; ".join([*texts, f"and {more} more"] if more else texts)


def _rule(verdicts: list[Verdict]) -> Iterator[str]:
    """What agrees, differs and inconclusive mean, and the words in brackets that occur."""
    decided = [verdict for verdict in verdicts if verdict.kind in _DECIDED]
    if any(verdict.gap is not None and verdict.gap.error is not None for verdict in decided):
        yield (
            "Agrees: the gap (reproduced − published) is smaller than the margin, throughout its 90 % interval. "
            "Differs: the gap, in brackets, is larger than the margin, throughout its 95 % interval. "
            "Inconclusive: the noise is too large to tell."
        )
    reasons = {verdict.why for verdict in decided if verdict.kind == "inconclusive"}
    if reasons - {ONE_SEED, PAPERS_NOISE}:
        yield "Needs N seeds: so many per method would be enough, if the gap and the deviation remained the same."
    if PAPERS_NOISE in reasons:
        yield f"Paper's noise: not even {MOST_SEEDS} seeds would be enough, because the published number is noisy, too."
    if ONE_SEED in reasons:
        yield "One seed: the noise is not known; it needs two seeds."


def _margins(table: Table) -> Iterator[str]:
    """The margins of the columns with verdicts."""
    titles: dict[Margin, dict[str, None]] = defaultdict(dict)
    for c, column in enumerate(table.layout.columns):
        margin = rules().margin(column.metric, column.form)
        if any(row[c].verdict.kind in _DECIDED for block in table.published for row in block):
            titles[margin][_title(column)] = None
    statistical = [
        f"{margin} for {_enumerated(list(names))}" for margin, names in titles.items() if margin.exact is None
    ]
    if statistical:
        computed = any(number.rounding is not None for number in _judged_numbers(table))
        of_both = "; multiples of printed times: plus half a unit of the last decimal of both times" if computed else ""
        yield f"Margins: {'; '.join(statistical)}; each plus half a unit of the last printed decimal{of_both}."
    for margin, names in titles.items():
        if margin.exact:
            differ = any(entry.verdict.kind == "differs" for block in table.published for row in block for entry in row)
            gaps = "; in brackets: reproduced − published" if differ else ""
            yield f"Exact quantities agree if they are equal in the printed decimals: {_enumerated(list(names))}{gaps}."


def _judged_numbers(table: Table) -> Iterator[PublishedNumber]:
    """The published numbers of the entries with verdicts."""
    for entry in (entry for block in table.published for row in block for entry in row):
        if entry.number is not None and entry.verdict.kind in _DECIDED:
            yield entry.number


def _title(column: Column) -> str:
    """The quantity of a column without its unit."""
    return _OF_FORM[column.form].format(quantity(column.metric).title)


def _enumerated(names: list[str]) -> str:
    if any("," in name for name in names):
        return "; ".join(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _noise(table: Table, paper: str) -> Iterator[str]:
    """Where the noise of the gaps comes from; quoted numbers have their own."""
    summaries = [summary for block in table.summaries for summary in block]
    own = [summary.noise for summary in summaries if summary.noise is not None]
    quoted = [summary.quoted_noise for summary in summaries if summary.quoted_noise is not None]
    counted = [_counted(own, paper)] if own else []
    if quoted and table.layout.quoted is not None:
        counted.append(_counted(quoted, table.layout.quoted.paper))
    if counted:
        separately = ", separately for quoted numbers" if own and quoted else ""
        yield (
            f"Noise: the deviation s of a run is pooled over the methods of a column{separately}. "
            f"The published number counts {'; a quoted one counts '.join(dict.fromkeys(counted))}."
        )


def _counted(noises: Sequence[Noise], paper: str) -> str:
    """As how many runs a published number of this paper counts, and with which deviation."""
    seeds = rules().repetitions(paper).seeds
    runs = f"as the mean of {seeds} runs" if seeds else "as one run (the paper does not state its number of seeds)"
    printed = any(noise.printed is not None for noise in noises)
    deviation = "with the printed ±, pooled over the column, as its deviation" if printed else "with the same deviation"
    return f"{runs}, {deviation}"
