"""The papers' published numbers: all files `paper_tables/PAPER/published/table_NN.csv`, validated, as one frame.

One row per printed number. Keys are text; a key is empty if the paper does not state it or if it does not apply.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedflat.bench.experiments.files import PAPER_TABLES
from fedflat.bench.input.errors import UserError, unknown

COUNTS = ["n_clients", "active_clients", "rounds"]
"""Keys whose values are whole numbers."""

SETTING = ["dataset", "model", "partition", "partition_param", *COUNTS]
"""Keys that a paper may leave unstated."""

KEYS = ["paper", "table", "method", *SETTING, "metric", "variant"]
"""Keys that together identify a number."""

COLUMNS = ["paper", "table", "method", *SETTING, "metric", "value", "std", "variant", "note"]
"""The header of every file."""

PUBLISHED_METRICS = {
    "test_accuracy": "test accuracy (%)",
    "train_accuracy": "training accuracy (%)",
    "test_accuracy_gain": "gain in test accuracy (points)",
    "test_accuracy_std_last100": "deviation of test accuracy over the last 100 rounds (points)",
    "accuracy_gain_abs": "gain in test accuracy (points)",
    "accuracy_gain_rel_pct": "gain in test accuracy (% of the reference)",
    "miou": "mean intersection over union (%)",
    "lambda_max": "largest Hessian eigenvalue",
    "lambda_ratio_1_5": "ratio of the first to the fifth eigenvalue",
    "lpf": "low-pass-filter loss",
    "flatness_discrepancy": "flatness discrepancy",
    "rounds_to_target": "rounds to a target",
    "rounds_to_target_x": "rounds to a target (multiple)",
    "comm_cost_gb": "traffic (GB)",
    "comm_cost_x": "traffic (multiple)",
    "compute_time_min": "time of computation (min)",
    "compute_time_x": "time of computation (multiple)",
    "wallclock_s_per_round": "seconds per round",
    "stored_memory_x": "models stored by a client (multiple)",
    "backprop_x": "gradients per local step (multiple)",
    "model_transmissions": "models sent and received",
}
"""All quantities of the tables, in words."""

MULTIPLES = {metric for metric in PUBLISHED_METRICS if metric.endswith("_x")}
"""Quantities that are printed as multiples of another method's value."""

PARTITIONS = {
    "dirichlet", "pathological", "iid", "lda", "pam", "leave_one_domain_out", "uniform", "heterogeneous", "",
}  # fmt: skip

VALUELESS = {
    "failed": "the paper says that the run failed",
    "not_reported": "a dash or an empty cell",
}
"""Notes of rows without a value."""

DOUBTFUL = {
    "typo_suspected": "does not fit other places",
    "ambiguous_column": "printed out of line: its column is unknown",
    "ocr_uncertain": "damaged in the text at hand",
    "ocr_zero_risk": "a 0 may be a misread 9",
    "decimal_restored": "the decimal point is lost in the text at hand",
    "label_inferred": "the row's label is damaged",
    "illegible_here": "taken from another table of the paper",
    "chance_level": "the accuracy of guessing",
}
"""Notes of numbers that are shown but not used for verdicts."""

OTHER = {
    "censored": "a bound: the target was not reached until then",
    "crosscheck": "another place of the paper confirms it",
    "ocr_settled": "damaged in the text at hand; another place of the paper settles it",
    "quoted": "the number of another paper, which the detail names",
    "inferred_column": "printed out of line; another table shows its column",
    "setting_inferred": "the setting is not stated; other tables show it",
    "clients_inferred": "the clients are not stated; another table shows them",
    "client_totals_derived": "the number of all clients is computed from clients per domain",
    "std_across_clients": "the deviation is over clients, not over repetitions",
}

NOTES = {**VALUELESS, **DOUBTFUL, **OTHER}
"""Every kind of note, in words."""

REMARKS = (
    "clients inferred from table",
    "one number printed for both coefficients",
    "printed as Cost, equals ratio of rounds",
    "printed once as FedLESAM(S-D)",
    "printed validation accuracy",
    "row called FedSAM in the text",
    "table 1 prints",
    "tick marks absent from the text copy",
)
"""Beginnings of the notes that have no kind: plain remarks."""

KeyValue = str | int | tuple[str, ...]
"""The requested value of a key, or several values of which one must fit."""

_PARTS = re.compile(r"; | \| ")
_KIND = re.compile(r"[a-z]+(_[a-z]+)*")
_VALUES = re.compile(r"[;/]")


def kinds(note: str) -> tuple[str, ...]:
    """The kinds in a note. A note joins items `kind`, `kind: detail` and plain remarks by '; ' or ' | '."""
    heads = [part.partition(":")[0] for part in _PARTS.split(note)]
    return tuple(head for head in heads if head in NOTES)


def quoted_from(note: str) -> str | None:
    """The other paper's table whose number is quoted, such as FedLESAM table 2; None if the number is not quoted."""
    items = (part.partition(":") for part in _PARTS.split(note))
    return next((detail.strip() for head, _, detail in items if head == "quoted"), None)


@dataclass(frozen=True)
class PublishedNumber:
    """One published number: `value` is None if none is printed; `decimals` is the number of printed decimals.

    `rounding`: the largest error of rounding, for a number that is computed from printed ones; None for a printed one.
    """

    value: float | None
    std: float | None = None
    note: str = ""
    decimals: int = 2
    std_decimals: int = 2
    rounding: float | None = None

    @property
    def deviation(self) -> "PublishedNumber | None":
        """The printed standard deviation as a number by itself; None if none is printed."""
        return None if self.std is None else PublishedNumber(self.std, None, self.note, self.std_decimals)

    @property
    def half_unit(self) -> float:
        """Half a unit of the value's last printed decimal: the largest error of rounding."""
        return 0.5 * 10.0**-self.decimals if self.rounding is None else self.rounding

    def multiple_of(self, reference: "PublishedNumber", decimals: int) -> "PublishedNumber":
        """The value as a multiple of another one, to be shown with these decimals; no value if either is missing or 0.

        The roundings of both numbers add up on logarithms; a note on either number holds for the multiple.
        """
        note = "; ".join(dict.fromkeys(filter(None, (self.note, reference.note))))
        if not self.value or not reference.value:
            return PublishedNumber(None, note=note)
        multiple = self.value / reference.value
        certain = (1 - self.half_unit / self.value) * (1 - reference.half_unit / reference.value)
        return PublishedNumber(multiple, None, note, decimals, rounding=multiple * (1 - certain))

    @property
    def censored(self) -> bool:
        """Whether the value is only a bound."""
        return "censored" in kinds(self.note)

    @property
    def doubtful(self) -> bool:
        """Whether the value must not be used for a verdict."""
        return not DOUBTFUL.keys().isdisjoint(kinds(self.note))

    @property
    def quoted(self) -> bool:
        """Whether the paper quotes it from another paper."""
        return quoted_from(self.note) is not None

    @property
    def failed(self) -> bool:
        """Whether the paper says that the run failed."""
        return "failed" in kinds(self.note)


def papers() -> list[str]:
    """The papers that have published numbers, by name."""
    return sorted(folder.parent.name for folder in PAPER_TABLES.glob("*/published"))


def as_printed(paper: str | None = None) -> pd.DataFrame:
    """The files of one paper or all, each column as text; a `UserError` names what is invalid in a file."""
    known = papers()
    if paper is not None and paper not in known:
        raise unknown("paper", paper, known)
    names = known if paper is None else [paper]
    files = [file for name in names for file in sorted((PAPER_TABLES / name / "published").glob("table_*.csv"))]
    return pd.concat([_read(file, file.stat().st_mtime_ns) for file in files], ignore_index=True)


def published(paper: str | None = None) -> pd.DataFrame:
    """The published numbers of one paper or all.

    Columns as in the files: keys and `note` as text, counts as nullable integers, `value` and `std` as floats; and the
    numbers of their printed decimals, `decimals` and `std_decimals`.
    """
    frame = as_printed(paper)
    decimals = {
        new: frame[name].str.partition(".")[2].str.len().astype(int)
        for name, new in (("value", "decimals"), ("std", "std_decimals"))
    }
    numbers = {name: pd.to_numeric(frame[name]).astype(float) for name in ("value", "std")}
    counts = {name: pd.to_numeric(frame[name]).astype("Int64") for name in COUNTS}
    return frame.assign(**numbers, **counts, **decimals)


def find(
    frame: pd.DataFrame,
    *,
    paper: str | None = None,
    table: str | None = None,
    method: str | None = None,
    dataset: str | None = None,
    model: str | None = None,
    partition: str | None = None,
    partition_param: str | None = None,
    n_clients: int | None = None,
    active_clients: int | None = None,
    rounds: int | None = None,
    metric: str | None = None,
    variant: str | tuple[str, ...] | None = None,
) -> PublishedNumber | None:
    """The only row of a frame of `published()` that fits the keys (see `fitting`); None if no row fits.

    A `UserError` if several rows fit.
    """
    keys: dict[str, KeyValue | None] = {
        "paper": paper, "table": table, "method": method, "dataset": dataset, "model": model, "partition": partition,
        "partition_param": partition_param, "n_clients": n_clients, "active_clients": active_clients, "rounds": rounds,
        "metric": metric, "variant": variant,
    }  # fmt: skip
    given = {key: value for key, value in keys.items() if value is not None}
    rows = fitting(frame, given)
    if rows.empty:
        return None
    if len(rows) > 1:
        what = ", ".join(f"{key} {value}" for key, value in given.items())
        raise UserError(
            f"{len(rows)} published numbers match {what or 'an empty selection'}, but one is needed: "
            f"{_differences(rows)}"
        )
    row = rows.iloc[0]
    number, std = (None if pd.isna(row[name]) else float(row[name]) for name in ("value", "std"))
    return PublishedNumber(number, std, str(row["note"]), int(row["decimals"]), int(row["std_decimals"]))


def fitting(frame: pd.DataFrame, keys: Mapping[str, KeyValue]) -> pd.DataFrame:
    """The rows of a frame of `published()` that fit all keys; where a key has several values, any of them.

    A key of `SETTING` that is empty in a row fits every value: tables of flatness do not state the clients, tables of
    costs do not state the setting. A partition parameter such as 0.6;0.1 (one number for two partitions) fits both
    values. All other keys must be equal.
    """
    rows = np.arange(len(frame))
    for key, value in keys.items():  # each reads only the rows that the keys before have left
        column = frame[key].array[rows]
        values = value if isinstance(value, tuple) else (value,)
        rows = rows[np.logical_or.reduce([_fits(key, column, one) for one in values])]
    return frame.iloc[rows]


def _fits(key: str, column: pd.api.extensions.ExtensionArray, value: str | int) -> NDArray[np.bool_]:
    """Which values of a key's column fit the value."""
    if key in COUNTS:
        numbers = column.to_numpy(dtype=float, na_value=np.nan)
        return np.asarray(np.isnan(numbers) | (numbers == value))
    texts = column.to_numpy(dtype=object)
    fits: NDArray[np.bool_] = texts == value
    if key in SETTING:
        fits |= texts == ""
    if key == "partition_param":
        fits |= np.array([value in _VALUES.split(text) for text in texts], dtype=bool)
    return fits


def _differences(rows: pd.DataFrame) -> str:
    """The keys in which the rows differ, with their values."""
    several = [key for key in KEYS if rows[key].nunique(dropna=False) > 1]
    differing = {key: [str(value) for value in rows[key].unique()] for key in several}
    texts = (f"{key} is {', '.join(value or 'empty' for value in values)}" for key, values in differing.items())
    return "; ".join(texts) or "they differ in no key"


@cache
def _read(file: Path, _written: int) -> pd.DataFrame:
    """One file as text, validated once; a `UserError` names the file, the row and what is invalid.

    `_written`: the time of its last change. Callers do not change the frame.
    """
    try:
        frame = pd.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read '{file}': {' '.join(str(error).split())}") from None
    if list(frame.columns) != COLUMNS:
        raise UserError(f"'{file}' has the columns {', '.join(frame.columns)} (it must have: {', '.join(COLUMNS)})")
    table = file.stem.removeprefix("table_").lstrip("0")
    for line, row in enumerate(frame.to_dict("records"), start=2):
        for problem in _problems({str(key): str(value) for key, value in row.items()}, file.parents[1].name, table):
            raise UserError(f"'{file}', line {line}: {problem}")
    certain = frame[~frame["note"].map(lambda note: "ambiguous_column" in kinds(note))]
    repeated = certain.index[certain.duplicated(KEYS)].tolist()
    if repeated:
        raise UserError(f"'{file}', line {repeated[0] + 2} has the same keys as another line")
    return frame


def _problems(row: dict[str, str], paper: str, table: str) -> Iterator[str]:
    """Messages about invalid fields in a row of this paper's table."""
    if (row["paper"], row["table"]) != (paper, table):
        yield f"{row['paper']} table {row['table']} in the file of {paper} table {table}"
    for key, allowed in (("metric", PUBLISHED_METRICS), ("partition", PARTITIONS)):
        if row[key] not in allowed:
            yield str(unknown(key, row[key], allowed))
    for key in COUNTS:
        if row[key] and not row[key].isdecimal():
            yield f"{key} = '{row[key]}': allowed are whole numbers, or an empty field"
    for key in ("value", "std"):
        if row[key] and not re.fullmatch(r"-?\d+(\.\d+)?", row[key]):
            yield f"{key} = '{row[key]}': allowed are plain decimals, or an empty field"
    if not _known(row["note"]):
        yield f"unknown note '{row['note']}' (kinds: {', '.join(NOTES)})"
    if (row["value"] == "") == VALUELESS.keys().isdisjoint(kinds(row["note"])):
        yield f"a row must have either a value or one of the notes {', '.join(VALUELESS)}"


def _known(note: str) -> bool:
    """Whether a note begins with a known kind or remark, and all its kinds are known."""
    first, *others = (part.partition(":")[0] for part in _PARTS.split(note))
    begins = not note or first in NOTES or note.startswith(REMARKS)
    return begins and not any(_KIND.fullmatch(head) and head not in NOTES for head in others)
