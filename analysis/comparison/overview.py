"""What is stored as baselines, as lines of text."""

import json
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from fedflat.analysis.comparison.baselines import folder_of, load, stored_grids
from fedflat.analysis.comparison.run_table import TUNED
from fedflat.analysis.comparison.tuning.search_budgets import budgets, in_words
from fedflat.analysis.comparison.tuning.trials import load_trials
from fedflat.analysis.layouts.run_columns import ANALYSED
from fedflat.bench.experiments.address import IDS
from fedflat.bench.files.text_table import aligned
from fedflat.bench.input.errors import first_few


def grids() -> list[str]:
    """One line for each stored grid."""
    rows = [("grid", "runs", "settings", "methods", "seeds", "variants", "size")]
    for grid in stored_grids():
        runs = load(grid).runs
        seeds = runs.groupby([*IDS, "variant"]).size()
        rows.append(
            (
                grid,
                f"{len(runs):,}",
                str(len(runs.drop_duplicates(IDS[:3]))),
                str(runs["method"].nunique()),
                _range(seeds),
                ", ".join(_variants(runs)),
                f"{size(folder_of(grid)) / 1e6:.2f} MB",
            )
        )
    return aligned(rows, right={1, 2, 3, 4, 6}) if len(rows) > 1 else ["no grid has stored baselines"]


def overview(grid: str, folder: Path | None = None) -> list[str]:
    """What the baselines of a grid contain and where they are, as aligned lines."""
    return aligned([*facts(grid, folder), ("folder", str(folder or folder_of(grid)))])


def facts(grid: str, folder: Path | None = None) -> list[tuple[str, str]]:
    """What the baselines of a grid contain: names and values."""
    runs, trials = load(grid, folder).runs, load_trials(grid, folder)
    tuned = runs[runs["variant"] == TUNED]
    analysed = [column for column in ANALYSED if runs[column].notna().any()]
    diverged = (runs["outcome"] == "diverged").sum()
    return [
        ("runs", f"{len(runs):,}" + (f", {diverged} of which diverged" if diverged else "")),
        ("experiments", _counted(runs["experiment"])),
        ("variants", ", ".join(_variants(runs))),
        *([("tuning", " | ".join(dict.fromkeys(map(in_words, budgets(tuned)))))] if len(tuned) else []),
        ("settings", ", ".join("/".join(setting) for setting in runs[IDS[:3]].drop_duplicates().to_numpy())),
        ("seeds", ", ".join(map(str, sorted(runs["seed"].unique())))),
        ("methods", ", ".join(runs["method"].unique())),
        ("reported", " | ".join(runs["report"].unique())),
        ("analyses", ", ".join(analysed) or "none"),
        ("trials", "none" if trials is None else _counted(trials["experiment"], "trials")),
        ("size", f"{size(folder or folder_of(grid)) / 1e6:.2f} MB"),
        ("code", first_few(list(runs["code"].unique()))),
        ("libraries", " | ".join(_versions(text) for text in runs["versions"].unique())),
        ("devices", ", ".join(runs["device"].unique())),
        ("processors", ", ".join(filter(None, runs["processor"].unique())) or "unknown"),
        ("hours", f"{runs['seconds'].sum() / 3600:.1f} of training and evaluation"),
    ]


def size(folder: Path) -> int:
    """The bytes of the files in a folder."""
    return sum(file.stat().st_size for file in folder.glob("*.csv"))


def _variants(runs: pd.DataFrame) -> list[str]:
    pairs = runs[["variant", "trials"]].drop_duplicates().itertuples(index=False, name=None)
    return [f"{variant} ({trials} trials)" if trials else str(variant) for variant, trials in pairs]


def _range(counts: Iterable[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _counted(column: pd.Series, what: str = "runs") -> str:
    return ", ".join(f"{name} ({count:,} {what})" for name, count in column.value_counts(sort=False).items())


def _versions(text: str) -> str:
    return ", ".join(f"{name} {version}" for name, version in json.loads(text).items())
