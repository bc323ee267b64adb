"""A user-defined table, CSV or Parquet: columns of numbers and texts, of which one is the class of each row."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from fedflat.bench.data.own_arrays import CLIENTS, samples
from fedflat.bench.data.sources.arrays import Arrays, OwnArrays
from fedflat.bench.input.content import LargeFile, short_hash, stem
from fedflat.bench.input.errors import UserError, first_few, unknown
from fedflat.bench.numerics.streams import numpy_stream

if TYPE_CHECKING:  # importing pandas takes a part of a second
    from pandas import DataFrame, Series

ENDINGS = (".csv", ".csv.gz", ".parquet")
MOST_FEATURES = 10_000
"""More features are hardly meant: a column has a text of its own in each row."""


class TestTable(LargeFile):
    """A second table with the same columns, whose rows are the test samples."""

    kind: ClassVar[str] = "test table"


class TableFile(LargeFile, OwnArrays):
    """A CSV or Parquet table, whose rows are samples.

    A column of numbers is a feature, standardised by mean and deviation of the training rows. A column of texts becomes
    a feature for each text of the training rows: 1 where a row has it, else 0. Truth values are 0 and 1. Classes are
    numbered in the order of their names. Without a test table, a fixed draw of a share of each class is the test set.
    """

    model_config = ConfigDict(populate_by_name=True)

    name: Literal["table"] = "table"
    kind: ClassVar[str] = "table"
    label_column: str = Field(
        alias="label",
        examples=["diagnosis"],
        description="the column with the class of each row: texts, or whole numbers",
    )
    client: str | None = Field(
        default=None, examples=["hospital"], description="the column with the client of each row; null: none"
    )
    ignore: tuple[str, ...] = Field(default=(), examples=[["id"]], description="columns that are no features")
    categorical: tuple[str, ...] = Field(
        default=(), examples=[["region"]], description="columns of numbers that stand for categories, as texts do"
    )
    missing: Literal["refuse", "impute"] = Field(
        default="refuse",
        description="values that are missing: refuse is an error; impute replaces numbers by the median and others by "
        "the most frequent value of the training rows",
    )
    test_share: float = Field(default=0.2, gt=0, lt=1, description="share of each class that is for the test")
    test: TestTable | None = Field(default=None, description="a file with the test rows, instead of a share")

    @property
    def label(self) -> str:
        """The title, or the name of the file without its ending."""
        return self.title or stem(self.file) or "table"

    @property
    def content(self) -> str:
        """The hash of the files and of everything that decides how they are read."""
        fields = self.model_dump(mode="json", exclude={"file": True, "test": {"file"}, "title": True, "classes": True})
        return short_hash(json.dumps(fields, sort_keys=True))

    @classmethod
    def overview(cls, root: Path) -> tuple[str, ...]:
        """Texts for a list."""
        return ("yours", "yours", "yours", "", "", "yours", "a CSV or Parquet table, one of whose columns is the class")

    def read(self) -> Arrays:
        """The rows as features, in float32."""
        tables = [(self.what, _read(self.unchanged(), self.what))]
        if self.test is not None:
            tables.append((self.test.what, _read(self.test.unchanged(), self.test.what)))
        special = [self.label_column, *([] if self.client is None else [self.client])]
        for what, table in tables:
            needed = special if what == self.what else special[:1]  # test rows have no clients
            for column in (*needed, *self.ignore, *self.categorical):
                if column not in table.columns:
                    raise unknown(f"column of {what}", column, [str(name) for name in table.columns])
        (what, table), other = tables[0], tables[-1]
        columns = [name for name in table.columns if name not in (*special, *self.ignore)]
        if missing := [str(name) for name in columns if name not in other[1].columns]:
            raise UserError(f"{other[0]} has no column {first_few(missing)}, which {what} has")
        self._check_missing(tables, columns)
        labels = [_classes(one[self.label_column], where) for where, one in tables]
        names = sorted(set(labels[0]))
        if strange := sorted(set(labels[-1]) - set(names)):
            raise UserError(f"{other[0]}: {self.label_column} has {strange[0]!r}, which no training row has")
        y = [np.searchsorted(names, own) for own in labels]
        if self.test is None:
            is_test = _drawn(y[0], self.test_share)
            train, test, y = table[~is_test], table[is_test], [y[0][~is_test], y[0][is_test]]
        else:
            train, test = table, other[1]
        x = self._features(train, test, columns, what)
        arrays: dict[str, Any] = {"x_train": x[0], "y_train": y[0], "x_test": x[1], "y_test": y[1]}
        if self.client is not None:
            arrays[CLIENTS] = np.array(train[self.client].astype(str).tolist())
        return samples(arrays, what)

    def _check_missing(self, tables: Sequence[tuple[str, "DataFrame"]], columns: Sequence[str]) -> None:
        """A `UserError` that names the first missing value, unless it is imputed."""
        always = [name for name in (self.label_column, self.client) if name is not None]
        for what, table in tables:
            for column in (*always, *(columns if self.missing == "refuse" else ())):
                if column in table.columns and (gaps := np.flatnonzero(table[column].isna())).size:
                    more = f", as {gaps.size - 1} others of this column" if gaps.size > 1 else ""
                    remedy = "" if column in always else "; missing: impute fills them in"
                    raise UserError(f"{what}: {column} of row {gaps[0] + 1} is missing{more} (allowed: values{remedy})")

    def _features(
        self, train: "DataFrame", test: "DataFrame", columns: Sequence[str], what: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The features `[n, features]` of training and test rows."""
        made = [self._of_column(train[name], test[name], what) for name in columns]
        if not made:
            raise UserError(f"{what} has no column of features (allowed: at least one besides label and client)")
        widths = [own.shape[1] for own, _ in made]
        if sum(widths) > MOST_FEATURES:
            widest = columns[int(np.argmax(widths))]
            raise UserError(
                f"{what}: {widest} has {max(widths):,} different values, so that there are {sum(widths):,} features "
                f"(allowed: {MOST_FEATURES:,}; ignore: [{widest}] leaves it out)"
            )
        return np.hstack([own for own, _ in made]), np.hstack([own for _, own in made])

    def _of_column(self, train: "Series", test: "Series", what: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The features of a column; a `UserError` if it has neither numbers nor texts."""
        kind, column = _kind(train), train.name
        if kind == "other" or _kind(test) not in (kind, "number" if kind == "truth" else kind):
            found = train.dtype if kind == "other" else f"{train.dtype}, but {test.dtype} in the test table"
            raise UserError(f"{what}: {column} has {found} (allowed: numbers, texts or truth values; or ignore it)")
        if kind != "text" and column not in self.categorical:
            x, other = (part.to_numpy(dtype=float, na_value=np.nan) for part in (train, test))
            for part in (x, other):
                if np.isinf(part).any():
                    raise UserError(f"{what}: {column} has infinite values (allowed: finite numbers)")
            if self.missing == "impute" and len(known := x[~np.isnan(x)]):
                x, other = (np.where(np.isnan(part), np.median(known), part) for part in (x, other))
            if kind == "number":
                mean, std = x.mean(), x.std() or 1.0
                x, other = (x - mean) / std, (other - mean) / std
            return x[:, None], other[:, None]
        if self.missing == "impute" and len(frequent := train.mode()):
            train, test = train.fillna(frequent[0]), test.fillna(frequent[0])
        values = np.array(sorted(set(train.astype(str))))
        one, two = (np.array(part.astype(str).tolist())[:, None] == values for part in (train, test))
        return one.astype(float), two.astype(float)


def _kind(column: "Series") -> str:
    """Number, truth, text, or other."""
    from pandas.api import types  # noqa: PLC0415 - see above

    if types.is_bool_dtype(column):
        return "truth"
    if types.is_numeric_dtype(column) and not types.is_complex_dtype(column):
        return "number"
    return "text" if types.is_string_dtype(column.dropna()) or types.is_object_dtype(column) else "other"


def _classes(column: "Series", what: str) -> list[Any]:
    """The class of each row; a `UserError` if numbers are no whole ones."""
    if _kind(column) == "number":
        if (wrong := column[column % 1 != 0]).size:
            raise UserError(f"{what}: {column.name} has {wrong.iloc[0]} (allowed: texts or whole numbers, the classes)")
        return column.astype(int).tolist()
    return column.astype(str).tolist()


def _drawn(y: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Which rows are for the test: the rounded share of each class, but not all of one."""
    is_test = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        rows = numpy_stream(0, "test rows", int(label)).permutation(np.flatnonzero(y == label))
        is_test[rows[: min(round(share * len(rows)), len(rows) - 1)]] = True
    return is_test


def _read(file: Path, what: str) -> "DataFrame":
    """The table. A `UserError` if it cannot be read."""
    import pandas as pd  # noqa: PLC0415 - see above

    if not file.name.endswith(ENDINGS):
        raise UserError(f"{what} is no table that is known (allowed: {', '.join(ENDINGS)})")
    try:
        table = pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file, low_memory=False)
    except ImportError:
        raise UserError(f"{what} needs the package pyarrow; install it with: pip install 'fedflat[parquet]'") from None
    except (ValueError, OSError) as error:  # also errors of parsers and of pyarrow
        raise UserError(f"{what} cannot be read ({' '.join(str(error).split())})") from None
    if not len(table):
        raise UserError(f"{what} has no rows (allowed: at least one of each class)")
    return table
