"""Which runs can be compared: same setting and seed, protocol, data, partition, and reported value."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.comparison.run_table import AMOUNT
from bench.experiments.address import IDS
from bench.experiments.results import run_in
from bench.input.errors import UserError

PAIR = [*IDS[:3], "seed"]
"""Columns that are equal for the two runs of a pair."""

SHARED = ["protocol", "partition_hash", "data_hash", "report"]
"""Columns in which the two runs of a pair must not differ."""

Row = Mapping[Hashable, Any]
"""One row of a frame, by columns."""


def difference(one: Row, other: Row, names: tuple[str, str]) -> str | None:
    """Why two runs, called by their `names`, cannot be compared, in words; None if they can."""

    def differing(what: str, column: str) -> str:
        return f"{what}: {_text(one[column])} {names[0]}, {_text(other[column])} {names[1]}"

    if one["protocol"] != other["protocol"]:
        for name in ("model", *AMOUNT):
            if _text(one[name]) != _text(other[name]):
                return differing(name, name)
        return "options of data set, partition, participation or augmentation"
    if one["data_hash"] != other["data_hash"]:
        return differing("content of the data set", "data_hash")
    if one["partition_hash"] != other["partition_hash"]:
        return differing("content of the partition", "partition_hash")
    if one["report"] != other["report"]:
        return differing("reported value", "report")
    return None


def place_of(row: Row) -> str:
    """Setting and seed of a run, for messages: digits/dirichlet-0.1/4-of-20/seed-0."""
    return str(run_in(Path(row["dataset"], row["partition"], row["participation"]), row["seed"]))


def check_accuracies(runs: pd.DataFrame, what: str) -> None:
    """A `UserError` if some runs are of segmentation, and judged by their mean IoU; `what`: whose runs they are."""
    if "test_miou" in runs:
        found = ", ".join(runs.loc[runs["test_miou"].notna(), "dataset"].unique())
        raise UserError(
            f"comparisons, stored baselines and studies are of test accuracies, but {what} has data sets for "
            f"segmentation{f' ({found})' if found else ''} (allowed: data sets with one label per image)"
        )


def check_comparable(rows: pd.DataFrame, where: str) -> None:
    """A `UserError` if two runs with the same setting and seed cannot be compared."""
    columns = [*PAIR, "method", "experiment", "model", *AMOUNT, *SHARED]
    for _, group in rows.drop_duplicates([*PAIR, *SHARED])[columns].groupby(PAIR, sort=False):
        first, *others = group.to_dict("records")
        for other in others:
            key = "method" if first["method"] != other["method"] else "experiment"
            why = difference(first, other, (f"in {first[key]}", f"in {other[key]}"))
            if why is not None:
                raise UserError(
                    f"{where}: {first[key]} and {other[key]} cannot be compared in {place_of(first)} ({why})"
                )


def _text(value: Any) -> str:
    return "none" if pd.isna(value) or value == "" else str(value)
