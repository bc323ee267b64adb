"""Stored baselines: the finished runs of a grid as files that are committed with the code.

results/baselines/GRID/runs.csv     one row per run: setting, method, seed, and what it has measured and spent
results/baselines/GRID/about.csv    what runs have in common: how they were configured and computed
results/baselines/GRID/curves.csv   one row per run: its evaluations, in columns such as test_accuracy_10
results/baselines/GRID/NAME.yaml    an experiment with tuned values, whose runs are stored
results/baselines/GRID/trials.csv   one row per trial of a search without early stopping (see comparison.tuning)

A row of runs.csv names its row of about.csv. A killed command may leave further rows in about.csv and curves.csv:
runs.csv is written last.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedflat.analysis.comparison.comparable import check_comparable
from fedflat.analysis.comparison.run_table import ABOUT, AMOUNT, CURVE_IDS, run_columns
from fedflat.analysis.layouts.run_columns import (
    ANALYSED,
    CURVE,
    GAP,
    OF_FITTING,
    RATED,
    ROUNDS_TO,
    better,
    further_metrics,
)
from fedflat.bench.experiments.address import IDS, RUN_IDS
from fedflat.bench.experiments.installed import RUNS, stored_names, where_stored
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.files.csv_json import read_checked_csv, write_checked_csv
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.metrics.quantity import Better

KEY = [*RUN_IDS, "variant"]
"""Columns in which no two stored runs are equal."""

COMMON, CURVES = "about.csv", "curves.csv"
"""Names of the other files of a grid."""

REFERENCE = "about"
"""The column of runs.csv that names a row of about.csv."""

SETTING = "setting"
"""The first column of runs.csv, for readers: data set, partition and participation in one."""

LATER = "tuning"
"""The column of about.csv that files of earlier versions lack."""

MOST_EVALUATIONS = 40
"""Of a longer curve, this many evaluations are stored, evenly spaced, the first and the last one among them."""

DIGITS = 6
"""Significant digits of stored numbers. The accuracies and losses of runs.csv have all digits: their bits are
verified."""

_COUNTS = ["trials", *AMOUNT]
_TEXTS = [
    SETTING,
    *RUN_IDS[:4],
    "variant",
    "outcome",
    "identity",
    "partition_hash",
    REFERENCE,
    *(set(ABOUT) - set(_COUNTS)),
]


@dataclass(frozen=True)
class Baselines:
    """The stored runs of a grid: `runs` has the columns of `run_table`, `curves` those of `curve_table`."""

    runs: pd.DataFrame
    curves: pd.DataFrame

    @property
    def metrics(self) -> dict[str, Better]:
        """The measured columns, and whether higher or lower values are better."""
        return rated_columns(self.runs)

    def of_variant(self, variant: str) -> "Baselines":
        """The runs with untuned values, or those with tuned ones."""
        return Baselines(*(frame[frame["variant"] == variant] for frame in (self.runs, self.curves)))


def rated_columns(runs: pd.DataFrame) -> dict[str, Better]:
    """The measured columns of a frame of runs, and whether higher or lower values are better."""
    rated = {column: better(column) for column in map(str, runs)}
    return {column: best for column, best in rated.items() if best is not None}


def stored_grids(place: Path | None = None) -> list[str]:
    """The grids with stored baselines in the folder of all grids."""
    if place is not None:
        return sorted(file.parent.name for file in place.glob(f"*/{RUNS}"))
    return [name for name in stored_names(ResultPaths().baselines("any").parent) if (folder_of(name) / RUNS).is_file()]


def folder_of(grid: str) -> Path:
    """The folder from which the stored baselines of a grid are read."""
    return where_stored(ResultPaths().baselines(grid))


def stored_experiment(folder: Path, name: str) -> Path:
    """The file of an experiment with tuned values, next to its stored runs."""
    return folder / f"{name}.yaml"


def load(grid: str, folder: Path | None = None) -> Baselines:
    """The stored baselines of a grid; if there are none, a `UserError` names the stored grids and the command."""
    place = folder or folder_of(grid)
    add = f"fedflat baselines add EXPERIMENT --grid {grid}" + ("" if folder is None else f" --baselines {folder}")
    if not (place / RUNS).is_file():
        if (earlier := place.with_name(f"{place.name}.csv")).is_file():
            raise UserError(f"'{earlier}' has the form of an earlier version; delete it, and store again with: {add}")
        if folder is None and (stored := stored_grids()):
            raise unknown("grid of stored baselines", grid, stored)
        raise UserError(f"no stored baselines at '{place}' (stored grids: none); store them with: {add}")
    remedy = f"restore '{place}', or delete it and store the runs with: {add}"
    runs = _read(place / RUNS, [*KEY, "outcome", "last_round", *RATED, REFERENCE], KEY, remedy)
    about = _read(place / COMMON, [REFERENCE, *(name for name in ABOUT if name != LATER)], [REFERENCE], remedy)
    if LATER not in about:
        about[LATER] = ""
    curves = _read(place / CURVES, CURVE_IDS, CURVE_IDS, remedy)
    for file, keys in ((about, [REFERENCE]), (curves, CURVE_IDS)):
        known = runs[keys].merge(file[keys], on=keys, how="left", indicator=True)["_merge"] == "both"
        if not known.all():
            name = COMMON if file is about else CURVES
            raise UserError(f"'{place / name}' lacks {(~known).sum()} of {len(runs)} runs of {RUNS}: {remedy}")
    runs = runs.merge(about, on=REFERENCE).drop(columns=[REFERENCE, SETTING], errors="ignore")
    runs[GAP] = runs["train_accuracy"] - runs["test_accuracy"]
    runs = runs.assign(**{name: math.nan for name in ANALYSED if name not in runs})  # those of later versions
    runs = runs.astype({**dict.fromkeys(rated_columns(runs), float), **dict.fromkeys(AMOUNT, "Int64")})[_ordered(runs)]
    check_comparable(runs, f"'{place}'")
    return Baselines(runs, _long(runs[CURVE_IDS].merge(curves, on=CURVE_IDS)))


def save(place: Path, baselines: Baselines) -> None:
    """Write the files of a grid. A kill leaves the old baselines or the new ones."""
    runs, wide = baselines.runs, _wide(baselines)
    names = [short_hash("\n".join(map(str, row)), digits=8) for row in runs[ABOUT].itertuples(index=False)]
    common = runs[ABOUT].assign(**{REFERENCE: names})
    measured = runs.drop(columns=[*ABOUT, GAP]).assign(**{REFERENCE: common[REFERENCE]})
    measured.insert(0, SETTING, runs[IDS[:3]].agg("/".join, axis=1))
    numbers = [name for name in baselines.metrics if name not in (*RATED, *OF_FITTING, GAP)]
    new = {
        COMMON: common.drop_duplicates(REFERENCE)[[REFERENCE, *ABOUT]],
        CURVES: _rounded(wide, [column for column in map(str, wide) if column not in CURVE_IDS]),
        RUNS: _rounded(measured, numbers),
    }
    keys = {COMMON: [REFERENCE], CURVES: CURVE_IDS}
    for name, columns in keys.items():  # with the old rows, which the old runs.csv needs
        write_checked_csv(place / name, _with_old(new[name], place / name, columns))
    write_checked_csv(place / RUNS, new[RUNS])
    for name in keys:
        write_checked_csv(place / name, new[name])


def _read(file: Path, columns: Sequence[str], keys: Sequence[str], remedy: str) -> pd.DataFrame:
    whole = [name for name in ("seed", "trials", "last_round") if name in columns]
    table = read_checked_csv(
        file, columns, remedy, texts=_TEXTS, whole=whole, keys=keys, keep_default_na=False, na_values=[""]
    )
    return table.fillna(dict.fromkeys(_TEXTS, ""))


def _with_old(new: pd.DataFrame, file: Path, keys: Sequence[str]) -> pd.DataFrame:
    """The new rows and those of the file that have other keys; a file that cannot be read has none."""
    try:
        old = _read(file, keys, keys, "")
    except UserError:
        return new
    return pd.concat([new.astype(object), old.astype(object)], ignore_index=True).drop_duplicates(list(keys)).copy()


def _ordered(runs: pd.DataFrame) -> list[str]:
    """The columns of `run_table`, with the targets that these runs have."""
    targets = [float(column.removeprefix(ROUNDS_TO)) for column in map(str, runs) if column.startswith(ROUNDS_TO)]
    return run_columns(targets, further=further_metrics(runs), of_fitting="fit_round" in runs)


def _rounded(table: pd.DataFrame, columns: Collection[str]) -> pd.DataFrame:
    """The table with `DIGITS` significant digits in these columns, and whole numbers without a decimal point."""
    rounded = {name: [_short(value) for value in table[name].tolist()] for name in columns}
    short = pd.DataFrame(rounded, index=table.index, dtype=object)
    return pd.concat([table.drop(columns=list(columns)), short], axis=1)[list(table)].copy()  # in one block


def _short(value: float) -> float | int | None:
    if value is None or math.isnan(value):
        return None
    if math.isinf(value):
        return value
    return int(value) if value == int(value) else float(f"{value:.{DIGITS}g}")


def _wide(baselines: Baselines) -> pd.DataFrame:
    """One row per run, with a column for each measured number and round."""
    curves = baselines.curves
    rounds = np.sort(curves["round"].unique())
    spaced = np.linspace(0, len(rounds) - 1, min(len(rounds), MOST_EVALUATIONS)).round().astype(int)
    chosen = curves[curves["round"].isin(rounds[spaced])]
    wide = chosen.pivot(index=CURVE_IDS, columns="round", values=list(CURVE))
    wide.columns = pd.Index([f"{column[0]}_{column[1]}" for column in wide.columns])
    return baselines.runs[CURVE_IDS].merge(wide.reset_index(), on=CURVE_IDS, how="left")


def _long(wide: pd.DataFrame) -> pd.DataFrame:
    """The curves as `curve_table` gives them."""
    rounds = [
        int(str(column).removeprefix(f"{CURVE[0]}_")) for column in wide if str(column).startswith(f"{CURVE[0]}_")
    ]
    frames = [
        wide[CURVE_IDS].assign(round=number, **{name: wide[f"{name}_{number}"] for name in CURVE}) for number in rounds
    ]
    if not frames:
        return pd.DataFrame(columns=[*CURVE_IDS, "round", *CURVE])
    long = pd.concat(frames).sort_index(kind="stable").astype(dict.fromkeys(CURVE, float))
    return long[long[CURVE[0]].notna()].reset_index(drop=True)
