"""Which runs can be compared: same setting and seed, protocol, data, partition, reported value, and version."""

import json
import re
import shlex
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedflat.analysis.comparison.run_table import AMOUNT
from fedflat.bench.experiments.address import IDS
from fedflat.bench.experiments.results import run_in
from fedflat.bench.input.errors import UserError

PAIR = [*IDS[:3], "seed"]
"""Columns that are equal for the two runs of a pair."""

SHARED = ["protocol", "partition_hash", "data_hash", "report"]
"""Columns in which the two runs of a pair must not differ."""

VERSIONS = "allowed: versions with the same first two numbers"
"""FedFlat's versions that give comparable numbers. A version that changes the numbers of a method raises the second."""

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


def other_versions(codes: Iterable[str], others: Iterable[str]) -> tuple[str, str] | None:
    """Versions of FedFlat in two columns `code` whose runs cannot be compared, in words; None if all can.

    The versions are compared, and not the hash after `+`: every edit of the package `bench` changes it. Runs of unknown
    version are compared.
    """
    one, other = (set(filter(None, map(_release, found))) for found in (codes, others))
    if len(one | other) <= 1:
        return None
    return _releases(one), _releases(other)


def _release(code: str) -> str | None:
    """The first two numbers of the version: 0.1 for 0.1.0+3b56a0880db3cca3."""
    found = re.match(r"\d+\.\d+", code)
    return found and found[0]


def _releases(found: Iterable[str]) -> str:
    return " and ".join(f"FedFlat {one}" for one in sorted(found)) or "no version"


def check_versions(codes: Iterable[str], where: str) -> None:
    """A `UserError` if runs of one grid are of versions that cannot be compared."""
    codes = list(codes)
    if found := other_versions(codes, codes):
        raise UserError(
            f"{where}: runs of {found[0]} cannot be stored together ({VERSIONS}); train the older ones again"
        )


def origin_notes(
    own: pd.DataFrame, rivals: pd.DataFrame, name: str, grid: str, baselines: Path | None = None
) -> list[str]:
    """Notes if the runs of a method and the stored ones differ in code, torch or device.

    `baselines`: the folder of the stored ones; None: that of the grid.
    """
    mine, stored = ([_origin(rows, column) for column in _ORIGIN] for rows in (own, rivals))
    if mine == stored:
        return []
    folder = [] if baselines is None else ["--baselines", str(baselines)]
    return [
        f"computed by: {name}: {'; '.join(mine)}",
        f"computed by: stored runs: {'; '.join(stored)}",
        "other code, libraries or devices can change numbers; this trains some stored runs again: "
        + shlex.join(["fedflat", "baselines", "verify", grid, *folder]),
    ]


_ORIGIN = ("code", "versions", "device")


def _origin(rows: pd.DataFrame, column: str) -> str:
    """What computed runs, in words: code, torch or device."""
    texts = sorted(rows[column].unique())
    if column == "versions":
        texts = sorted({str(json.loads(text or "{}").get("torch", "unknown")) for text in texts})
    return f"{'torch' if column == 'versions' else column} {', '.join(text or 'unknown' for text in texts)}"


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
