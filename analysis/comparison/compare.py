"""Compare one method with the stored baselines: runs paired by setting and seed, with intervals and tests.

Both runs of a pair have the same data, partition, initial model and schedule of clients, so they differ only in the
method. A run that diverged or missed a target has no value: its partner wins, and means, intervals and tests leave the
pair out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.baselines import Baselines, load
from analysis.comparison.comparable import PAIR, SHARED, difference, place_of
from analysis.comparison.run_table import AMOUNT, ANALYSED, FinishedRun, as_json, better, require_all_rounds, run_table
from analysis.measures.convergence import Better
from analysis.measures.paired import holm, interval, sign_flip
from analysis.report.requested import RequestedExperiment
from bench.experiments.address import IDS
from bench.experiments.files import experiment_names
from bench.experiments.run_config import RunConfig
from bench.input.errors import UserError, first_few, unknown
from bench.training.directories.shared_runs import shared_run
from bench.training.run_directory import RunDirectory, finished_run, is_complete

MARKED_PAIRS = 6
"""A result over fewer pairs is never marked: its two-sided sign-flip test cannot reach a p-value below 0.05."""

ALL = "all"
"""The value of the columns dataset, partition and participation in rows over all settings."""


@dataclass(frozen=True)
class Comparison:
    """A method's runs paired with the stored ones; `pairs` has one row per pair and stored method.

    Columns of `pairs`: those that identify a pair, the stored `method` and its `title`, the values `mine` and `stored`
    (NaN for runs that diverged, or missed a target), `same` (both runs have the same configuration). `variant`: of the
    stored runs. `report`: of which evaluations accuracies and losses are, in words. `unpaired` says in words which runs
    have no partner.
    """

    method: str
    experiment: str
    grid: str
    variant: str
    metric: str
    report: str
    about: str
    pairs: pd.DataFrame
    unpaired: tuple[str, ...]

    @property
    def better(self) -> Better:
        """Whether higher or lower values of the metric are better."""
        return better(self.metric) or "none"

    def tables(self, by_setting: bool) -> dict[tuple[str, str, str], pd.DataFrame]:
        """One table over all settings and, if requested, one for each setting."""
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


def compare(
    method: str,
    grid: str,
    results: Path,
    *,
    experiment: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    metric: str = "test_accuracy",
    variant: str | None = None,
    baselines: Path | None = None,
) -> Comparison:
    """Pair a method's finished runs with the stored baselines of a grid.

    `experiment`: name or YAML file of the experiment with the method's runs; None: the experiment named like the grid.
    `variant`: untuned or tuned stored runs; None: as the method's runs, if such runs are stored.
    """
    stored = load(grid, baselines)
    if metric not in stored.metrics:
        raise unknown("metric of stored baselines", metric, stored.metrics)
    requested = RequestedExperiment(experiment or _of_grid(grid), results, overrides or {})
    mine = method_rows(method, requested)
    variant = _variant(stored, grid, variant, mine)
    partners = stored.runs[stored.runs["variant"] == variant]
    pairs, unpaired = paired(mine, partners, metric, method, grid)
    tuning = f"hyperparameters {mine['hyperparameters'][0]}\ntraining {mine['training'][0]}"
    report = str(mine["report"][0])
    return Comparison(method, requested.experiment.name, grid, variant, metric, report, tuning, pairs, unpaired)


def _variant(stored: Baselines, grid: str, wanted: str | None, mine: pd.DataFrame) -> str:
    """The requested variant of the stored runs; without a request, that of the method's runs if it is stored."""
    known = list(stored.runs["variant"].unique())
    if wanted is None:
        own = str(mine["variant"][0])
        return own if own in known else known[0]
    if wanted not in known:
        raise unknown(f"variant of the baselines of grid {grid}", wanted, known)
    return wanted


def _of_grid(grid: str) -> str:
    """The experiment with a grid's name; a `UserError` if there is none."""
    if grid not in (names := experiment_names()):
        raise UserError(
            f"no experiment has the name of the grid, {grid}: give the experiment of the runs with --experiment "
            f"(a YAML file, or one of {', '.join(names)})"
        )
    return grid


def method_rows(method: str, requested: RequestedExperiment) -> pd.DataFrame:
    """The rows of a method's finished runs in an experiment; a `UserError` if there is none.

    A run that is missing there is found in another experiment of the same results by its identity, such as one that was
    trained with `--set` into `runs/custom`.
    """
    experiment = requested.experiment
    if method not in experiment.methods:
        error = unknown(f"method of experiment {experiment.name}", method, experiment.methods)
        raise UserError(f"{error}; give the experiment of another method with --experiment FILE")
    runs = [
        FinishedRun(cell, run)
        for cell in experiment.addresses
        if cell.method == method
        for config in experiment.cell(cell.path).runs
        if (run := _found(config, requested.paths.run(experiment.name, cell.path, config.seed))) is not None
    ]
    if not runs:
        raise UserError(
            f"no finished run of {method} of experiment {experiment.name} under '{requested.results}'; "
            f"train it with: {requested.snakemake(f'{requested.target}_runs')}"
        )
    require_all_rounds(runs)
    return run_table(requested, runs)


def _found(config: RunConfig, folder: Path) -> RunDirectory | None:
    """The finished run of a configuration, in `folder` or in another experiment of the same results; None: no run.

    A `UserError` if `folder` holds a run of another configuration, and no other experiment has the run.
    """
    elsewhere = shared_run(config, folder)
    if elsewhere is not None and (not is_complete(folder) or RunDirectory(folder).identity != config.identity):
        return elsewhere
    return finished_run(folder, config)


def paired(
    mine: pd.DataFrame, stored: pd.DataFrame, metric: str, method: str, grid: str
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The pairs of a method's rows with the stored ones, and texts that name the rows of either side without a partner.

    A `UserError` if no run has a partner, or if a run differs from its partner in a column that a pair must share.
    """
    keys = [*PAIR, *SHARED, "model", *AMOUNT]
    runs, partners = (
        {place_of(row): row for row in rows.drop_duplicates(PAIR)[keys].to_dict("records")} for rows in (mine, stored)
    )
    for place, run in runs.items():
        why = difference(run, partners[place], ("here", "stored")) if place in partners else None
        if why is not None:
            raise UserError(f"{method} and the baselines of grid {grid} cannot be compared in {place} ({why})")
    common = [place for place in runs if place in partners]
    if not common:
        raise UserError(
            f"no run of {method} has a setting and seed of the baselines of grid {grid} "
            f"(here: {first_few(list(runs))}; stored: {first_few(list(partners))})"
        )
    unpaired: list[str] = []
    if unpaired_runs := [place for place in runs if place not in partners]:
        unpaired.append(f"left out, because nothing is stored for them: {first_few(unpaired_runs)} of {method}")
    if unpaired_runs := [place for place in partners if place not in runs]:
        unpaired.append(f"left out, because {method} has no finished run there: stored {first_few(unpaired_runs)}")

    if metric in ANALYSED:
        mine, stored, left_out = _analysed(mine, stored, metric, method, grid)
        unpaired += left_out
    columns = [*PAIR, metric, "identity"]
    left = mine[columns].rename(columns={metric: "mine", "identity": "mine_identity"})
    right = stored[[*columns, "method", "title"]].rename(columns={metric: "stored"})
    pairs = left.merge(right, on=PAIR).sort_values(["method", *PAIR], ignore_index=True)
    pairs["same"] = pairs["identity"] == pairs["mine_identity"]
    return pairs[[*PAIR, "method", "title", "mine", "stored", "same"]], tuple(unpaired)


def _analysed(
    mine: pd.DataFrame, stored: pd.DataFrame, metric: str, method: str, grid: str
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Both tables without runs that finished and are not analysed, and texts that count those.

    A `UserError` if none is left, or if the analyses have other options.
    """
    kept, texts, options = [], [], []
    for rows, whose in ((mine, f"of {method}"), (stored, f"in the baselines of grid {grid}")):
        has_value = rows[metric].notna()
        if not has_value.any():
            raise UserError(f"no run {whose} has a value of {metric}: the analysis {ANALYSED[metric]} is not computed")
        without = (rows["outcome"] == "finished") & ~has_value
        if without.any():
            texts.append(f"left out, because the analysis {ANALYSED[metric]} is not computed: {without.sum()} {whose}")
        kept.append(rows[~without])
        options.append({as_json(json.loads(text)[ANALYSED[metric]]) for text in rows.loc[has_value, "analyses"]})
    if options[0] != options[1]:
        here, there = (" and ".join(sorted(one)) for one in options)
        raise UserError(
            f"{metric} of {method} and of grid {grid} have other options of the analysis {ANALYSED[metric]} "
            f"(here: {here}; stored: {there})"
        )
    return kept[0], kept[1], texts


def summary(pairs: pd.DataFrame, better: Better) -> pd.DataFrame:
    """One row per stored method, the best stored mean first: pairs, means, difference, interval, wins, p-values.

    Pairs of a run with itself are left out, unless a method has no others.
    """
    groups = ((str(method), group, group[~group["same"]]) for method, group in pairs.groupby("method", sort=True))
    rows = [_row(method, group if rivals.empty else rivals, better) for method, group, rivals in groups]
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
