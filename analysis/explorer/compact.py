"""Frames as small JSON: columns instead of rows, repeated values and repeated curves once, six significant digits."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedflat.analysis.layouts.run_columns import run_quantity
from fedflat.bench.experiments.address import IDS, RUN_IDS

RUN_KEY = [*RUN_IDS, "variant"]
"""Columns that name a run of the page: one method may have runs with untuned and with tuned values."""

SURFACE = ("loss", "error")
"""Values of a loss surface."""

_MOST_POINTS = 200
_ALL_POINTS = 120_000
"""Of one curve, and of all curves of a page."""

_STEPS = (1, 2, 5)


def compact_columns(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Each column as `values`, or as different `levels` with their `codes`, whichever is shorter. Missing: None."""
    return {str(name): _column(_plain(frame[name])) for name in frame.columns}


def compact_curves(runs: pd.DataFrame, curves: pd.DataFrame) -> dict[str, Any]:
    """The curves of runs: `pool` has the different sequences of each column, `runs` the number of each run's sequence.

    Long curves of many runs are thinned: `step` is the number of evaluations of which one is kept, counted from the
    last. The last evaluation of each run is kept always. A run without a curve has the number None.
    """
    rounds = sorted(curves["round"].unique())
    step = _thinning(len(rounds), len(runs))
    kept = curves["round"].isin(rounds[::-1][::step]) | ~curves.duplicated(RUN_KEY, keep="last")
    by_run = dict(iter(curves[kept].groupby(RUN_KEY, sort=False)))
    columns = [name for name in map(str, curves) if run_quantity(name) is not None]
    pool: dict[str, dict[tuple[Any, ...], int]] = {name: {} for name in columns}
    numbers: dict[str, list[int | None]] = {name: [] for name in columns}
    for key in runs[RUN_KEY].itertuples(index=False, name=None):
        rows = by_run.get(key)
        for name in columns:
            sequence = None if rows is None else tuple(_plain(rows[name], _digits(name)))
            numbers[name].append(None if sequence is None else pool[name].setdefault(sequence, len(pool[name])))
    return {"step": step, "pool": {name: list(map(list, known)) for name, known in pool.items()}, "runs": numbers}


def compact_surfaces(surfaces: pd.DataFrame) -> list[dict[str, Any]]:
    """One entry for each `name` (of the analysis), cell and seed: the axes, and values in a row for each a."""
    entries = []
    for key, rows in surfaces.groupby(["name", *IDS, "variant", "seed"], sort=False):
        grids = {value: rows.pivot(index="a", columns="b", values=value) for value in SURFACE}
        grid = grids["loss"]
        entries.append(
            {
                **dict(zip(["name", *IDS, "variant", "seed"], map(_number, key), strict=True)),
                "definition": str(rows["definition"].iloc[0]),
                "a": _plain(pd.Series(grid.index)),
                "b": _plain(pd.Series(grid.columns)),
                **{name: [_plain(row, 4) for _, row in values.iterrows()] for name, values in grids.items()},
            }
        )
    return entries


def _column(values: Sequence[Any]) -> dict[str, Any]:
    levels = list(dict.fromkeys(values))
    if len(levels) > len(values) / 2:
        return {"values": list(values)}
    codes = {level: code for code, level in enumerate(levels)}
    return {"levels": levels, "codes": [codes[value] for value in values]}


def _plain(values: pd.Series, digits: int = 6) -> list[Any]:
    return [_number(value, digits) for value in values]


def _number(value: Any, digits: int = 6) -> Any:
    """A value for JSON: whole numbers without a point; None for NaN, infinity and missing texts."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        if not np.isfinite(value):
            return None
        rounded = float(f"{value:.{digits}g}")
        return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
    return None if pd.isna(value) else str(value)


def _digits(column: str) -> int:
    return 6 if column in ("round", "communicated_mb", "gradients") else 4


def _thinning(evaluations: int, runs: int) -> int:
    """One of how many evaluations is kept: 1, 2, 5, 10, 20, ..."""
    most = max(20, min(_MOST_POINTS, _ALL_POINTS // max(runs, 1)))
    return next(step for step in _round_steps() if evaluations <= step * most)


def _round_steps() -> Iterable[int]:
    power = 1
    while True:
        yield from (step * power for step in _STEPS)
        power *= 10
