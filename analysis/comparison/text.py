"""The text that `fedflat compare` prints: tables in columns, and notes that explain them."""

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.comparison.compare import ALL, MARKED_PAIRS, Comparison
from analysis.comparison.run_table import ANALYSED, RATED, ROUNDS_TO, rule_of
from analysis.measures.paired import EXACT_PAIRS, RESAMPLES
from bench.experiments.address import IDS
from bench.files.text_table import aligned

WIDTH = 110
"""Characters per line of the notes below the tables."""


def as_text(comparison: Comparison, by_setting: bool) -> str:
    """The tables as text, followed by notes that explain them."""
    sign = "above" if comparison.better == "higher" else "below"
    parts = [
        f"{comparison.method} (experiment {comparison.experiment}) and the stored baselines of grid {comparison.grid} "
        f"({comparison.variant})\n"
        f"{_metric(comparison)}; difference: {comparison.method} − stored, {sign} 0 is better\n"
        f"{comparison.about}"
    ]
    tables = comparison.tables(by_setting)
    count = comparison.pairs.drop_duplicates(IDS[:3]).shape[0]
    for setting, table in tables.items():
        title = "/".join(setting)
        if setting[0] == ALL:
            title = f"all {count} setting{'s' if count > 1 else ''}"
        parts.append(f"{title}\n{_columns(comparison.method, comparison.metric, table)}")
    notes = _notes(comparison, list(tables.values()))
    parts.append("\n".join(textwrap.fill(note, WIDTH, subsequent_indent="  ") for note in notes))
    return "\n\n".join(parts)


def _metric(comparison: Comparison) -> str:
    rated = comparison.metric in (*RATED, "generalisation_gap")
    return f"{comparison.metric} {rule_of(comparison.report).description}" if rated else comparison.metric


def _notes(comparison: Comparison, tables: Sequence[pd.DataFrame]) -> list[str]:
    seeds = comparison.pairs.groupby([*IDS[:3], "method"]).size()
    low, high = seeds.min(), seeds.max()
    many = f"{low} seed{'s' if low > 1 else ''}" if low == high else f"{low} to {high} seeds"
    whole = tables[0]
    against = int((~whole["same"]).sum())
    notes = [
        "pairs: same setting, seed, data, partition, initial model and schedule of clients",
        f"interval: of the mean difference, by Student's t from the spread within each setting ({many} per setting); "
        "for normal differences, it contains the true mean in 94 to 98 % of cases",
        f"p: sign-flip test of the paired differences, two-sided, "
        f"{'exact' if whole['pairs'].max() <= EXACT_PAIRS else f'{RESAMPLES:,} random flips'}; "
        f"Holm: corrected over the {against} method{'s' if against != 1 else ''} of a block",
        f"*: the interval excludes 0 (never with fewer than {MARKED_PAIRS} pairs, nor in favour of a method "
        "without a value in one)",
        f"no value: number of runs of {comparison.method} | of stored runs that {_without_value(comparison.metric)}; "
        "where one run of a pair did, the other one wins. Means, differences, intervals and p are computed from the "
        "other pairs",
    ]
    if any(table["interval_low"].isna().any() for table in tables):
        notes.append("–: no value; an interval needs two pairs with values in every setting, and three if there is one")
    same = whole.loc[whole["same"], "stored_method"].tolist()
    if same:
        notes.append(
            f"=: {', '.join(same)} is stored under the same configuration: {comparison.method} is compared with "
            "itself, and Holm's correction does not count it"
        )
    return [*notes, *comparison.unpaired]


def _without_value(metric: str) -> str:
    return "missed the target" if metric.startswith(ROUNDS_TO) else "diverged"


def _columns(method: str, metric: str, table: pd.DataFrame) -> str:
    """A table in columns: text aligned to the left, numbers to the right."""
    digits = 4 if metric.endswith("loss") or metric in ANALYSED else 2

    def number(value: float, form: str = f".{digits}f") -> str:
        return "–" if np.isnan(value) else format(value + 0.0, form)

    header = [
        "stored method",
        "pairs",
        method,
        "stored",
        "difference",
        "95 % interval",
        "",
        "wins",
        "p",
        "Holm",
        "no value",
    ]
    lines = [header]
    for row in table.to_dict("records"):
        low, high = (number(row[f"interval_{end}"], f"+.{digits}f") for end in ("low", "high"))
        lines.append(
            [
                row["stored_method"],
                str(row["pairs"]),
                number(row["mean"]),
                number(row["mean_stored"]),
                number(row["difference"], f"+.{digits}f"),
                "–" if low == "–" else f"[{low}, {high}]",
                "=" if row["same"] else "*" if row["marked"] else "",
                str(row["wins"]),
                number(row["p"], ".4f"),
                number(row["p_holm"], ".4f"),
                f"{row['diverged']} | {row['diverged_stored']}" if row["diverged"] + row["diverged_stored"] else "0",
            ]
        )
    return "\n".join(aligned(lines, right={k for k, title in enumerate(header) if title not in ("stored method", "")}))
