"""Compare one method with the stored baselines: runs paired by setting and seed.

Both runs of a pair have the same data, partition, initial model and schedule of clients, so they differ only in the
method.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedflat.analysis.comparison.ablation import WITHOUT
from fedflat.analysis.comparison.baselines import Baselines, load
from fedflat.analysis.comparison.comparable import (
    PAIR,
    VERSIONS,
    check_accuracies,
    difference,
    other_versions,
    place_of,
)
from fedflat.analysis.comparison.run_table import (
    CURVE_IDS,
    FinishedRun,
    as_json,
    curve_table,
    finished_runs,
    require_all_rounds,
    run_table,
)
from fedflat.analysis.comparison.statistics.scores import Scores
from fedflat.analysis.comparison.statistics.verdicts import verdicts, verdicts_by_setting
from fedflat.analysis.layouts.run_columns import ANALYSED, CURVE, run_quantity
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.experiments.address import IDS, Setting
from fedflat.bench.experiments.files import experiment_names
from fedflat.bench.input.errors import UserError, first_few, unknown
from fedflat.bench.metrics.columns import metric_column
from fedflat.bench.metrics.quantity import Better, Quantity

STORED = " (stored)"
"""The end of the label of a rival that has the method's label."""

TIMING = "seconds"
"""A column without a test: seeds of a cell that are trained together are one timing, divided among them."""


@dataclass(frozen=True)
class Comparison:
    """A method's runs and those of its rivals: `rows` of `run_table`, without gaps, the method's first; their `curves`.

    The labels in `rows` are distinct: a rival with the method's label is called `LABEL (stored)`. `notes`
    says in words what is left out; `lead`, what is said first. `source`: the experiment of the method as commands need
    it, a name or a file; `baselines`: the folder of the stored ones, None: that of the grid. `ablation`: the method
    with its variants without each part as rivals, if the experiment has some.
    """

    method: str
    experiment: str
    grid: str
    variant: str
    metric: str
    rows: pd.DataFrame
    curves: pd.DataFrame
    notes: tuple[str, ...] = ()
    source: str = ""
    baselines: Path | None = None
    lead: tuple[str, ...] = ()
    ablation: "Comparison | None" = None

    @property
    def quantity(self) -> Quantity:
        """The metric in words."""
        found = run_quantity(self.metric)
        assert found is not None
        return found

    @property
    def better(self) -> Better:
        """Whether higher or lower values of the metric are better."""
        return self.quantity.better

    @cached_property
    def scores(self) -> Scores:
        """The values of the metric."""
        return Scores.of(self.rows, self.metric, self.better)

    @cached_property
    def titles(self) -> dict[str, str]:
        """The title of each method by its label."""
        named = self.rows.drop_duplicates("method")
        return dict(zip(named["method"], named["title"], strict=True))

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """The verdicts over all settings, one row per rival."""
        return verdicts(self.scores, self.method)

    @cached_property
    def by_setting(self) -> dict[Setting, pd.DataFrame]:
        """The verdicts in each setting, one row per rival; of one setting, those over all settings."""
        return verdicts_by_setting(self.scores, self.method)


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
    `variant`: with untuned or tuned rivals; None: as the method's runs, if such runs are stored.
    """
    known = experiment is not None or grid in experiment_names()
    requested = RequestedExperiment(experiment or grid, results, overrides or {})
    if known:
        requested.experiment  # noqa: B018 - says what its own metrics are, which stored runs may have
    stored = load(grid, baselines)
    judged = [name for name in stored.metrics if name != TIMING]
    if metric == TIMING:
        raise UserError(
            f"--metric {TIMING}: not compared, because stored runs have the times of another machine, and seeds that "
            f"are trained together have one timing (allowed: {', '.join(judged)})"
        )
    if metric not in judged and (found := metric_column(metric)) is not None:
        why = f"the stored baselines of {grid} do not have it: the table of further metrics shows that of own runs"
        if found.better == "none":
            why = "neither higher nor lower values of it are better"
        raise UserError(f"--metric {metric}: {why} (allowed: {', '.join(judged)})")
    if metric not in judged:
        raise unknown("metric of stored baselines", metric, judged)
    if not known:
        _check_named(grid)
    if method.endswith(".py"):
        raise UserError(
            f"'{method}' is a file, not a method of an experiment; this trains and compares it: snakemake --cores 2 "
            f"compare --config method={method} grid={grid}"
        )
    runs = method_runs(method, requested)
    mine = run_table(requested, runs)
    check_accuracies(mine, f"experiment {requested.experiment.name}")
    variant = _variant(stored, grid, variant, mine)
    comparison = comparison_of(
        mine,
        curve_table(requested, runs),
        stored.of_variant(variant),
        grid=grid,
        variant=variant,
        metric=metric,
        source=requested.name_or_file,
        baselines=baselines,
    )
    return replace(comparison, ablation=_ablation(comparison, requested))


def _ablation(comparison: Comparison, requested: RequestedExperiment) -> Comparison | None:
    """The method and its variants without each part, as far as all their runs are finished; None without variants."""
    own = comparison.rows[comparison.rows["method"] == comparison.method]
    labels = [name for name in requested.experiment.methods if name.startswith(f"{comparison.method}{WITHOUT}")]
    rows = [run_table(requested, runs) for name in labels if (runs := finished_runs(requested, name))]
    if not rows or comparison.metric not in rows[0]:
        return None
    variants, notes = _complete(
        pd.concat(rows, ignore_index=True).merge(own[PAIR], on=PAIR), len(own), comparison.method
    )
    if variants.empty:
        return None
    both = pd.concat([own, variants], ignore_index=True)
    return replace(comparison, rows=both, notes=tuple(notes), lead=())


def comparison_of(
    mine: pd.DataFrame,
    own_curves: pd.DataFrame,
    stored: Baselines,
    *,
    grid: str,
    variant: str,
    metric: str,
    source: str,
    baselines: Path | None,
) -> Comparison:
    """Pair the rows of a method, and its curves, with stored ones of a variant; see `Comparison`."""
    rivals, notes = stored.runs, list[str]()
    if metric in ANALYSED:
        mine, rivals, notes = _analysed(mine, rivals, metric, grid)
    rows, left_out = paired(mine, rivals, grid)
    rows, empty = _with_values(rows, metric)
    curves = _curves_of(rows, pd.concat([own_curves, stored.curves]))
    return Comparison(
        method=str(mine["method"].iloc[0]),
        experiment=str(mine["experiment"].iloc[0]),
        source=source,
        grid=grid,
        baselines=baselines,
        variant=variant,
        metric=metric,
        rows=rows,
        curves=curves,
        notes=(*notes, *left_out, *empty),
    )


def _curves_of(rows: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """The curves of these runs, with the labels that they have in `rows`."""
    measured = curves[["identity", "round", *CURVE]].drop_duplicates(["identity", "round"])
    return rows[CURVE_IDS].merge(measured, on="identity")


def _with_values(rows: pd.DataFrame, metric: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows of settings in which a run has a value, and a text that names the others; a `UserError` without any."""
    has_value = rows.groupby(IDS[:3])[metric].transform("count") > 0
    empty = ["/".join(map(str, setting)) for setting in rows.loc[~has_value, IDS[:3]].drop_duplicates().to_numpy()]
    if not has_value.any():
        raise UserError(f"no run of the comparison has a value of {metric}")
    return rows[has_value], [
        f"left out, because no run has a value of {metric} there: {first_few(empty)}"
    ] if empty else []


def _variant(stored: Baselines, grid: str, wanted: str | None, mine: pd.DataFrame) -> str:
    """The requested variant of the stored runs; without a request, that of the method's runs if it is stored."""
    known = list(stored.runs["variant"].unique())
    if wanted is None:
        own = str(mine["variant"].iloc[0])
        return own if own in known else str(known[0])
    if wanted not in known:
        raise unknown(f"variant of the baselines of grid {grid}", wanted, known)
    return wanted


def _check_named(grid: str) -> None:
    """A `UserError` if no experiment has the name of the grid."""
    if grid not in (names := experiment_names()):
        raise UserError(
            f"no experiment has the name of the grid, {grid}: give the experiment of the runs with --experiment "
            f"(a YAML file, or one of {', '.join(names)})"
        )


def method_runs(method: str, requested: RequestedExperiment) -> list[FinishedRun]:
    """A method's finished runs of an experiment; a `UserError` if there is none."""
    experiment = requested.experiment
    if method not in experiment.methods:
        error = unknown(f"method of experiment {experiment.name}", method, experiment.methods)
        raise UserError(f"{error}; give the experiment of another method with --experiment FILE")
    runs = finished_runs(requested, method)
    if not runs:
        raise UserError(
            f"no finished run of {method} of experiment {experiment.name} under '{requested.results}'; "
            f"train it with: {requested.snakemake(f'{requested.target}_runs')}"
        )
    require_all_rounds(runs)
    return runs


def paired(mine: pd.DataFrame, stored: pd.DataFrame, grid: str) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The rows of a method and of its rivals in the same settings with the same seeds, and texts on what is left out.

    A `UserError` if no run has a partner, if versions or runs cannot be compared, or if no rival is left.
    """
    method = str(mine["method"].iloc[0])
    if versions := other_versions(mine["code"], stored["code"]):
        raise UserError(
            f"{method} and the baselines of grid {grid} cannot be compared ({versions[0]} here, {versions[1]} stored; "
            f"{VERSIONS}); use the stored version, or store the runs again with: fedflat baselines add EXPERIMENT "
            f"--grid {grid} --replace"
        )
    runs, partners = (_by_place(rows) for rows in (mine, stored))
    common = [place for place in runs if place in partners]
    for place in common:
        why = difference(runs[place], partners[place], ("here", "stored"))
        if why is not None:
            raise UserError(f"{method} and the baselines of grid {grid} cannot be compared in {place} ({why})")
    if not common:
        raise UserError(
            f"no run of {method} has a setting and seed of the baselines of grid {grid} "
            f"(here: {first_few(list(runs))}; stored: {first_few(list(partners))})"
        )
    others, notes = _without_itself(stored, mine, method)
    own = _with_shared_seeds(mine.merge(others[PAIR].drop_duplicates(), on=PAIR), method)
    rivals, partial = _complete(others.merge(own[PAIR], on=PAIR), len(own), method)
    notes += [*_unpaired(runs, partners, _by_place(own), method), *partial]
    if rivals.empty:
        raise UserError(f"{method} has no rival in the baselines of grid {grid} ({'; '.join(notes)})")
    if method in set(rivals["method"]):
        is_named = rivals["method"] == method
        for column in ("method", "title"):
            rivals[column] = rivals[column].where(~is_named, rivals[column] + STORED)
    return pd.concat([own, rivals], ignore_index=True), tuple(notes)


def _without_itself(stored: pd.DataFrame, mine: pd.DataFrame, method: str) -> tuple[pd.DataFrame, list[str]]:
    """The stored rows without those of methods all of whose runs are the method's, and a text that names these."""
    is_same = stored.merge(mine[PAIR], on=PAIR).assign(same=lambda rows: rows["identity"].isin(mine["identity"]))
    of_method = is_same.groupby("method", sort=False)["same"].all()
    names = list(of_method.index[of_method])
    text = f"left out, because it is stored with the same configuration: {', '.join(names)} is {method} itself"
    return stored[~stored["method"].isin(names)], [text] if names else []


def _by_place(rows: pd.DataFrame) -> dict[str, Any]:
    return {place_of(row): row for row in rows.drop_duplicates(PAIR).to_dict("records")}


def _with_shared_seeds(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    """The rows whose seed occurs in all settings; a `UserError` if there is none."""
    settings = rows[IDS[:3]].drop_duplicates()
    counts = rows.groupby("seed").size()
    shared = rows[rows["seed"].isin(counts.index[counts == len(settings)])]
    if shared.empty and not rows.empty:
        raise UserError(f"{method} has no seed that is finished in all of its {len(settings)} settings")
    return shared


def _complete(rivals: pd.DataFrame, runs: int, method: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows of the rivals with all runs of the method, and a text that names the others."""
    counts = rivals.groupby("method", sort=False).size()
    partial = counts[counts < runs]
    notes = [
        f"left out, because it has no stored run for each of {method}: {name} ({count} of {runs})"
        for name, count in partial.items()
    ]
    return rivals[~rivals["method"].isin(partial.index)].copy(), notes


def _unpaired(runs: Mapping[str, Any], partners: Mapping[str, Any], used: Mapping[str, Any], method: str) -> list[str]:
    """Texts that name the runs of either side without a partner, and those whose seed is missing in other settings."""
    without = [place for place in runs if place not in partners]
    unfinished = [place for place in partners if place not in runs]
    uneven = [place for place in runs if place in partners and place not in used]
    texts = {
        f"left out, because nothing is stored for them: {first_few(without)} of {method}": without,
        f"left out, because {method} has no finished run there: stored {first_few(unfinished)}": unfinished,
        f"left out, because {method} lacks their seeds in other settings: {first_few(uneven)}": uneven,
    }
    return [text for text, places in texts.items() if places]


def _analysed(
    mine: pd.DataFrame, stored: pd.DataFrame, metric: str, grid: str
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Both tables without runs that finished and are not analysed, and texts that count those.

    A `UserError` if none is left, or if the analyses have other options.
    """
    analysis, method = ANALYSED[metric], mine["method"].iloc[0]
    kept, texts, options = [], [], []
    for rows, whose in ((mine, f"of {method}"), (stored, f"in the baselines of grid {grid}")):
        has_value = rows[metric].notna()
        if not has_value.any():
            raise UserError(f"no run {whose} has a value of {metric}: the analysis {analysis} is not computed")
        without = (rows["outcome"] == "finished") & ~has_value
        if without.any():
            texts.append(f"left out, because the analysis {analysis} is not computed: {without.sum()} {whose}")
        kept.append(rows[~without])
        options.append({as_json(json.loads(text)[analysis]) for text in rows.loc[has_value, "analyses"]})
    if options[0] != options[1]:
        here, there = (" and ".join(sorted(one)) for one in options)
        raise UserError(
            f"{metric} of {method} and of grid {grid} have other options of the analysis {analysis} "
            f"(here: {here}; stored: {there})"
        )
    return kept[0], kept[1], texts
