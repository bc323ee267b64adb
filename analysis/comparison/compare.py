"""One method beside the stored baselines: paired by setting and seed, with intervals and tests.

A pair shares data, partition, initial model and the schedule of clients, so its difference is that of the methods. Runs
that diverged have no values: they are counted, lose their pair, and stay out of means, intervals and tests.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.baselines import METRICS, PAIR, SHARED, difference, load, place_of, run_rows
from analysis.comparison.method_runs import find_runs, some
from analysis.comparison.paired import EXACT_PAIRS, RESAMPLES, holm, interval, sign_flip
from analysis.measures.convergence import Better
from bench.experiments.address import IDS
from bench.files.text_table import aligned
from bench.input.errors import UserError, unknown

MARKED_PAIRS = 6
"""Fewer pairs are never marked: no sign-flip test of them has a two-sided p-value below 0.05."""

FEW_SEEDS = 10
"""Below so many seeds per setting, the output calls intervals rough."""

WIDTH = 110
"""Columns of the notes below the tables."""

ALL = "all"
"""In the setting columns of the CSV: over all settings."""


@dataclass(frozen=True)
class Comparison:
    """A method's runs and the stored ones, paired; `pairs` has one row per pair and stored method.

    Its columns: those of a pair's key, the stored `method`, `title`, `mine` and `stored` (nan for runs that diverged),
    `same` (both are of one configuration). `unpaired` tells which runs have no partner.
    """

    method: str
    experiment: str
    grid: str
    metric: str
    about: str
    pairs: pd.DataFrame
    unpaired: tuple[str, ...]

    @property
    def better(self) -> Better:
        """Which direction of the metric is better."""
        return METRICS[self.metric]

    def tables(self, by_setting: bool) -> dict[tuple[str, str, str], pd.DataFrame]:
        """One table over all settings, then perhaps one per setting."""
        blocks = {(ALL, ALL, ALL): summary(self.pairs, self.better)}
        if by_setting:
            for setting, rows in self.pairs.groupby(IDS[:3], sort=False):
                dataset, partition, participation = map(str, setting)
                blocks[dataset, partition, participation] = summary(rows, self.better)
        return blocks

    def csv(self, by_setting: bool) -> pd.DataFrame:
        """All tables as one tidy frame."""
        frames = []
        for setting, table in self.tables(by_setting).items():
            ids = dict(zip(IDS[:3], setting, strict=True))
            front = pd.DataFrame({**ids, "method": self.method, "metric": self.metric}, index=table.index)
            frames.append(pd.concat([front, table], axis=1))
        return pd.concat(frames, ignore_index=True)

    def text(self, by_setting: bool) -> str:
        """For people: tables in columns, then what they mean."""
        sign = "above" if self.better == "higher" else "below"
        parts = [
            f"{self.method} (experiment {self.experiment}) and the stored baselines of grid {self.grid}\n"
            f"{self.metric} after the last round; difference: {self.method} − stored, {sign} 0 is better\n{self.about}"
        ]
        tables = self.tables(by_setting)
        count = self.pairs.drop_duplicates(IDS[:3]).shape[0]
        for setting, table in tables.items():
            title = "/".join(setting)
            if setting[0] == ALL:
                title = f"all {count} setting{'s' if count > 1 else ''}"
            parts.append(f"{title}\n{_text(self.method, self.metric, table)}")
        notes = self._notes(list(tables.values()))
        parts.append("\n".join(textwrap.fill(note, WIDTH, subsequent_indent="  ") for note in notes))
        return "\n\n".join(parts)

    def _notes(self, tables: Sequence[pd.DataFrame]) -> list[str]:
        seeds = self.pairs.groupby([*IDS[:3], "method"]).size()
        low, high = seeds.min(), seeds.max()
        many = f"{low} seed{'s' if low > 1 else ''}" if low == high else f"{low} to {high} seeds"
        rough = f"; with {many} per setting, intervals are rough" if low < FEW_SEEDS else ""
        whole = tables[0]
        against = int((~whole["same"]).sum())
        notes = [
            "pairs: same setting, seed, data, partition, initial model and schedule of clients",
            f"interval: of the mean difference, {RESAMPLES:,} bootstrap resamples of the seeds within each "
            f"setting{rough}",
            f"p: sign-flip test of the paired differences, two-sided, "
            f"{'exact' if whole['pairs'].max() <= EXACT_PAIRS else f'{RESAMPLES:,} random flips'}; "
            f"Holm: corrected over the {against} method{'s' if against != 1 else ''} of a block",
            f"*: the interval excludes 0 (never with fewer than {MARKED_PAIRS} pairs, nor in favour of a method that "
            "diverged in one)",
            "diverged: runs of either side without a value; such a run loses its pair (counted in wins), and means, "
            "differences, intervals and p are over the other pairs",
        ]
        if any(table["interval_low"].isna().any() for table in tables):
            notes.append("–: no value; an interval needs two pairs with values in every setting")
        same = whole.loc[whole["same"], "stored_method"].tolist()
        if same:
            notes.append(
                f"=: {', '.join(same)} is stored under the same configuration: {self.method} is compared with itself, "
                "and this is not counted by Holm"
            )
        return [*notes, *self.unpaired]


def compare(
    method: str,
    grid: str,
    results: Path,
    *,
    experiment: str | None = None,
    changes: Mapping[str, Any] | None = None,
    metric: str = "test_accuracy",
    baselines: Path | None = None,
) -> Comparison:
    """Pair a method's finished runs with the stored baselines of a grid."""
    if metric not in METRICS:
        raise unknown("metric of stored baselines", metric, METRICS)
    stored = load(grid, baselines)
    name, runs = find_runs(method, experiment, results, changes or {})
    mine = pd.concat([run_rows(run, ids, method) for run, ids in runs], ignore_index=True)
    pairs, unpaired = paired(mine, stored, metric, method, grid)
    tuning = f"hyperparameters {mine['hyperparameters'][0]}\ntraining {mine['training'][0]}"
    return Comparison(method, name, grid, metric, tuning, pairs, unpaired)


def paired(
    mine: pd.DataFrame, stored: pd.DataFrame, metric: str, method: str, grid: str
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The pairs of a method's rows with the stored ones, and which of both have no partner, in words.

    A `UserError` if no run has a partner, or if one differs from its partner in what a fair pair must share.
    """
    keys = [*PAIR, *SHARED, "model", "rounds", "local_epochs", "batch_size"]
    here, there = mine.drop_duplicates(PAIR)[keys], stored.drop_duplicates(PAIR)[keys]
    partners = {place_of(row): row for row in there.to_dict("records")}
    runs = {place_of(row): row for row in here.to_dict("records")}
    for place, run in runs.items():
        why = difference(run, partners[place], ("here", "stored")) if place in partners else None
        if why is not None:
            raise UserError(f"{method} and the baselines of grid {grid} cannot be compared in {place} ({why})")
    common = [place for place in runs if place in partners]
    if not common:
        raise UserError(
            f"no run of {method} has a setting and seed of the baselines of grid {grid} "
            f"(here: {some(list(runs))}; stored: {some(list(partners))})"
        )
    unpaired = []
    if lone := [place for place in runs if place not in partners]:
        unpaired.append(f"left out, for nothing is stored there: {some(lone)} of {method}")
    if lone := [place for place in partners if place not in runs]:
        unpaired.append(f"left out, for {method} has no finished run there: stored {some(lone)}")

    columns = [*PAIR, "value", "identity"]
    left = mine.loc[mine["metric"] == metric, columns].rename(columns={"value": "mine", "identity": "mine_identity"})
    right = stored.loc[stored["metric"] == metric, [*columns, "method", "title"]].rename(columns={"value": "stored"})
    pairs = left.merge(right, on=PAIR).sort_values(["method", *PAIR], ignore_index=True)
    for side in ("mine", "stored"):
        pairs[side] = pairs[side].where(np.isfinite(pairs[side]))
    pairs["same"] = pairs["identity"] == pairs["mine_identity"]
    return pairs[[*PAIR, "method", "title", "mine", "stored", "same"]], tuple(unpaired)


def summary(pairs: pd.DataFrame, better: Better) -> pd.DataFrame:
    """One row per stored method, the best stored mean first: pairs, means, difference, interval, wins, p-values."""
    rows = [_row(str(method), group, better) for method, group in pairs.groupby("method", sort=True)]
    table = pd.DataFrame(rows).sort_values("mean_stored", ascending=better == "lower", kind="stable", ignore_index=True)
    tested = ~table["same"] & table["p"].notna()
    table["p_holm"] = table["p"]
    table.loc[tested, "p_holm"] = holm(table.loc[tested, "p"])
    return table


def _row(stored_method: str, pairs: pd.DataFrame, better: Better) -> dict[str, Any]:
    mine, stored = pairs["mine"].to_numpy(dtype=float), pairs["stored"].to_numpy(dtype=float)
    both = np.isfinite(mine) & np.isfinite(stored)
    d = (mine - stored)[both]
    strata = pairs.loc[both, IDS[:3]].agg("/".join, axis=1).to_numpy() if both.any() else np.empty(0, dtype=str)
    gain = d if better == "higher" else -d
    low, high = interval(d, strata)
    lost_here, lost_there = ~np.isfinite(mine), ~np.isfinite(stored)
    favours_mine = bool(gain.mean() > 0) if len(d) else False
    diverged = lost_here.any() if favours_mine else lost_there.any()
    return {
        "stored_method": stored_method,
        "stored_title": pairs["title"].iloc[0],
        "pairs": len(pairs),
        "mean": mine[both].mean() if len(d) else np.nan,
        "mean_stored": stored[both].mean() if len(d) else np.nan,
        "difference": d.mean() if len(d) else np.nan,
        "interval_low": low,
        "interval_high": high,
        "marked": bool(len(d) >= MARKED_PAIRS and (low > 0 or high < 0) and not diverged),
        "wins": int((gain > 0).sum() + (lost_there & ~lost_here).sum()),
        "losses": int((gain < 0).sum() + (lost_here & ~lost_there).sum()),
        "p": sign_flip(d) if len(d) else np.nan,
        "diverged": int(lost_here.sum()),
        "diverged_stored": int(lost_there.sum()),
        "same": bool(pairs["same"].all()),
    }


def _text(method: str, metric: str, table: pd.DataFrame) -> str:
    """A table in columns: text aligned to the left, numbers to the right."""
    digits = 2 if metric.endswith("accuracy") else 4

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
        "diverged",
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
