"""The finished runs of an experiment as two frames: one row per run, and one row per evaluation of a run.

Numbers come from the files of runs and from the tidy files of analyses. An analysis that is not computed leaves NaN.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from fedflat.analysis.analyses import ANALYSES
from fedflat.analysis.analyses.training.convergence import Convergence
from fedflat.analysis.comparison.tuning.search_budgets import recorded
from fedflat.analysis.layouts.protocol import final_at_scale
from fedflat.analysis.layouts.run_columns import (
    ANALYSED,
    CURVE,
    GAP,
    OF_FITTING,
    RATED,
    ROUNDS_TO,
    SPENT,
    better,
    further_metrics,
)
from fedflat.analysis.layouts.searched import is_searched
from fedflat.analysis.layouts.titles import method_titles
from fedflat.analysis.measures.convergence import FinalValue, final_value, first_reaching
from fedflat.analysis.measures.cost import images_of_steps, spending
from fedflat.analysis.measures.fitting import fit_round
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.experiments.address import RUN_IDS, CellAddress
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.run_config import NOT_IDENTITY, USER_FILES, RunConfig, not_in_keys
from fedflat.bench.experiments.sections.evaluation import TEST, Evaluation
from fedflat.bench.experiments.sections.training import AMOUNTS
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.current import finished_run
from fedflat.bench.training.run_directory import RunDirectory

TARGETS = (60.0, 70.0, 80.0, 90.0)
"""Test accuracies, or mean IoUs for segmentation, in percent to which every run's rounds are counted."""

AMOUNT = ["rounds", *AMOUNTS, "batch_size"]
"""Columns that say how much a run trains: either of local epochs and local steps is empty."""

ABOUT = [
    "experiment", "title", "trials", "tuning", "report", "model", *AMOUNT, "hyperparameters", "training",
    "configuration", "protocol", "data_hash", "code", "versions", "device", "processor", "engine", "analyses",
]  # fmt: skip
"""Columns that say how a run was configured and computed; mostly equal for all seeds of a cell."""

CURVE_IDS = [*RUN_IDS, "variant", "identity"]
"""The columns that name the run of a curve."""

UNTUNED, TUNED = "untuned", "tuned"

_NOT_SHARED: Mapping[str, Any] = {**NOT_IDENTITY, "seed": True}
"""Fields of a configuration that are not part of `configuration`: the others are equal for all seeds of a cell."""

_LATER = ("signals", "noise", "noise_seed", "images")
"""Fields that a data set got after runs were stored; without any of them it is the one that is stored."""

STEPS = set(StepSettings.model_fields)
"""Fields of `training` that belong to a method, and not to the protocol: rates, decay, clipping, aggregation."""


def target_column(target: float) -> str:
    """The column with the rounds to a test accuracy, or mean IoU, in percent: rounds_to_80 for 80.0."""
    return f"{ROUNDS_TO}{target:g}"


def protocol(config: RunConfig) -> str:
    """Hash (16 hex digits) of the part of a configuration that must be equal for two runs to be comparable.

    Not included: the method, the seed, evaluation, the engine, the fields of `training` that are tuned for each method,
    and the folder of user-defined images, whose content is hashed separately.
    """
    left_out: dict[str, Any] = dict.fromkeys(("method", "seed", "evaluation", "engine"), True)
    training = config.training
    later = ("local_steps", "drop_last", "work")  # fields that were added later
    left_out["training"] = STEPS | {key for key in later if getattr(training, key) is None}
    left_out["participation"] = not_in_keys(config.participation)
    if all(getattr(config.dataset, key, None) is None for key in _LATER):
        left_out["dataset"] = USER_FILES["dataset"] | dict.fromkeys(_LATER, True)
    content = config.model_dump(mode="json", exclude={**USER_FILES, **left_out})
    return short_hash(as_json(content))


def as_json(content: Any) -> str:
    """One line of JSON, sorted and without spaces: equal contents give equal texts."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class FinishedRun:
    """A finished run of an experiment, in the cell with this address."""

    address: CellAddress
    directory: RunDirectory

    @property
    def ids(self) -> dict[str, Any]:
        """The columns `RUN_IDS` with their values."""
        return {**self.address.columns, "seed": self.directory.config.seed}

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """The run's metrics."""
        return self.directory.metrics()

    @cached_property
    def spent(self) -> pd.DataFrame:
        """What the run has spent after each round: `communicated_mb` and `gradients`."""
        run = self.directory
        images = images_of_steps(run, self.metrics["round"])
        table = spending(self.metrics, run.times(), int(run.provenance["parameters"]), images)
        return pd.DataFrame({"communicated_mb": 1000 * table["gigabytes"], "gradients": table["image_gradients"]})

    @property
    def curve(self) -> pd.DataFrame:
        """One row per evaluated round: `round` and the measured columns."""
        table = self.metrics.assign(**self.spent)
        further = (column for column in self.further_metrics if column.startswith(TEST))
        return table.loc[table["test_accuracy"].notna(), ["round", *CURVE, *further]]

    @property
    def further_metrics(self) -> list[str]:
        """The columns of metrics that not every run has."""
        return further_metrics(self.metrics)

    @property
    def seconds(self) -> float:
        """The wall-clock time of training and evaluation."""
        times = self.directory.times()
        return math.fsum([*times["train_seconds"], *times["evaluation_seconds"].dropna()])


def finished_runs(requested: RequestedExperiment, method: str | None = None) -> list[FinishedRun]:
    """The finished runs of an experiment, or of one of its methods, in its order."""
    experiment, found = requested.experiment, []
    for cell in (experiment.cell(address.path) for address in experiment.addresses if method in (None, address.method)):
        for config in cell.runs:
            run = finished_run(requested.paths.run(config), config)
            if run is not None:
                found.append(FinishedRun(cell.address, run))
    return found


def require_all_rounds(runs: Iterable[FinishedRun]) -> None:
    """A `UserError` if a run stopped early."""
    for run in runs:
        if run.directory.stopped:
            path = run.directory.path
            raise UserError(f"'{path}' stopped early: a comparison needs runs of all rounds")


def run_table(
    requested: RequestedExperiment, runs: Sequence[FinishedRun] | None = None, *, analyses: bool = True
) -> pd.DataFrame:
    """One row per finished run of an experiment, with the columns of `run_columns`.

    Accuracies and mean IoUs are in percent, by the experiment's `report`; the generalisation gap is training minus test
    accuracy (of segmentation: mean IoU), in points. Rounds are those of the first evaluation that reaches the target.
    `communicated_mb` (10^6 bytes, up and down), `gradients` (of single images) and `seconds` are those of the whole run
    and all its clients. NaN: a run that diverged or stopped has no such value, the target was not reached, or the
    analysis is not computed.
    `runs`: those of `finished_runs`, if they are known. Without `analyses`, their columns are empty.
    """
    experiment, runs = requested.experiment, finished_runs(requested) if runs is None else runs
    for run in runs:
        run.directory.config.evaluation.require_test(f"a comparison with '{run.directory.path}'")
    titles, targets = method_titles(experiment), targets_of(requested)
    final = final_at_scale(FinalValue.named(experiment.report or "last"), experiment)
    rows = [
        {
            **run.ids,
            "title": titles[run.address.method],
            **tuning_of(experiment, run.address),
            **measured(run, final, targets),
            **about(run, final),
        }
        for run in runs
    ]
    columns = run_columns(
        targets,
        further=further_metrics(name for row in rows for name in row),
        of_fitting=any("fit_round" in row for row in rows),
    )
    if not rows:
        return pd.DataFrame(columns=columns)
    table = pd.DataFrame(rows).assign(experiment=experiment.name)
    computed: list[dict[str, Any]] = [{} for _ in rows]
    for name, values in _analysed(requested, [run.address for run in runs] if analyses else []):
        table = table.merge(values, on=RUN_IDS, how="left")
        has_value = table[[column for column in values if column not in RUN_IDS]].notna().any(axis=1)
        options = requested.analyses[name].model_dump(mode="json")
        for known, is_computed in zip(computed, has_value, strict=True):
            known.update({name: options} if is_computed else {})
    table["analyses"] = [as_json(known) for known in computed]
    return table.astype(dict.fromkeys(AMOUNT, "Int64"))[columns]


def curve_table(requested: RequestedExperiment, runs: Sequence[FinishedRun] | None = None) -> pd.DataFrame:
    """One row per evaluation of a finished run: the columns `CURVE_IDS`, `round`, `CURVE`, and perhaps test_miou.

    `communicated_mb` and `gradients` are sums from the first round on, as in `run_table`; `runs` as there.
    """
    experiment, runs = requested.experiment, finished_runs(requested) if runs is None else runs
    curves = [
        run.curve.assign(
            **run.ids,
            variant=tuning_of(experiment, run.address)["variant"],
            identity=run.directory.identity,
        )
        for run in runs
    ]
    columns = [*CURVE_IDS, "round", *CURVE, *further_metrics(name for curve in curves for name in curve)]
    return pd.concat(curves, ignore_index=True)[columns] if curves else pd.DataFrame(columns=columns)


def targets_of(requested: RequestedExperiment) -> list[float]:
    """The test scores in percent to which rounds are counted: `TARGETS` and those of the analysis convergence."""
    convergence = requested.analyses["convergence"]
    further = convergence.targets if isinstance(convergence, Convergence) else ()
    return sorted({*TARGETS, *further})


def run_columns(
    targets: Iterable[float] = TARGETS, *, further: Iterable[str] = (), of_fitting: bool = False
) -> list[str]:
    """The columns of `run_table` with these targets; `further`: those of metrics that not every run has; `of_fitting`:
    whether it has `OF_FITTING`."""
    return [
        *RUN_IDS, "variant", "outcome", "last_round",
        *RATED, *further, *(OF_FITTING if of_fitting else ()),
        GAP, *map(target_column, targets), *ANALYSED,
        *SPENT,
        "identity", "partition_hash", *ABOUT,
    ]  # fmt: skip


def measured(run: FinishedRun, final: FinalValue, targets: Iterable[float]) -> dict[str, float]:
    """What a run has measured and spent."""
    rated = {name: _final(run, name, final) for name in (*RATED, *run.further_metrics)}
    score = run.directory.config.dataset.score
    evaluations = run.metrics.set_index("round")[f"test_{score}"].dropna()
    reached = {target_column(target): first_reaching(evaluations, target) for target in targets}
    return {
        **rated,
        **_fitting(run, final),
        GAP: rated[f"train_{score}"] - rated[f"test_{score}"],
        **{name: math.nan if first is None else float(first) for name, first in reached.items()},
        **{str(name): float(total) for name, total in run.spent.iloc[-1].items()},
        "seconds": run.seconds,
        "last_round": int(run.metrics["round"].iloc[-1]),
    }


def _final(run: FinishedRun, column: str, final: FinalValue) -> float:
    return final_value(run.metrics, column, final, better(column) or "none")


def _fitting(run: FinishedRun, final: FinalValue) -> dict[str, float]:
    """The columns `OF_FITTING`, of a run whose data have images for validation."""
    metrics = run.metrics
    if "validation_accuracy" not in metrics or "test_accuracy" not in metrics:
        return {}
    judged = {
        name: _final(run, name, final) if name in metrics else math.nan
        for name in ("validation_accuracy", "validation_loss", "train_true_accuracy")
    }
    number = fit_round(metrics["round"], metrics["train_accuracy"])
    sent = run.spent.loc[metrics["round"] == number, "communicated_mb"]
    return {**judged, "fit_round": number, "fit_mb": float(sent.iloc[0]) if len(sent) else math.nan}


def about(run: FinishedRun, final: FinalValue) -> dict[str, Any]:
    """How a run was configured and computed."""
    config, provenance = run.directory.config, run.directory.provenance
    training = config.training
    return {
        "outcome": provenance["outcome"],
        "report": _report(final, config.evaluation),
        "model": config.model.label,
        **{name: getattr(training, name) for name in AMOUNT},
        "hyperparameters": as_json(config.method.hyperparameters),
        "training": as_json(training.model_dump(mode="json", include=STEPS, exclude_none=True)),
        "configuration": as_json(config.model_dump(mode="json", exclude=_NOT_SHARED, exclude_none=True)),
        "identity": run.directory.identity,
        "protocol": protocol(config),
        "partition_hash": provenance.get("partition_hash") or "",
        "data_hash": provenance.get("data_hash") or "",
        "code": f"{provenance['code'].get('version')}+{run.directory.fingerprint}",
        "versions": as_json(provenance.get("libraries", {})),
        "device": provenance.get("device") or "",
        "processor": provenance.get("processor") or "",
        "engine": as_json(provenance.get("engine", {})),
    }


def _report(final: FinalValue, evaluation: Evaluation) -> str:
    """Of which evaluations a run's values are: last, or such as 'mean_last_5, evaluated every 10 rounds'."""
    return final.name if final.rule == "last" else f"{final.name}, evaluated {evaluation.schedule}"


def rule_of(report: str) -> FinalValue:
    """The rule in a value of the column `report`."""
    return FinalValue.named(report.partition(",")[0])


def tuning_of(experiment: Experiment, cell: CellAddress) -> dict[str, Any]:
    """Whether the values of a cell are tuned, and with which budget; not those of a cell that was not searched."""
    tuned = experiment.tuned
    if tuned is None or not is_searched(experiment, cell):
        return {"variant": UNTUNED, "trials": 0, "tuning": ""}
    return {"variant": TUNED, "trials": tuned.trials, "tuning": as_json(recorded(tuned, cell.method))}


def _analysed(requested: RequestedExperiment, cells: Sequence[CellAddress]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each analysis, and its values as far as they are computed: `RUN_IDS`, and columns of `ANALYSED`."""
    for name in dict.fromkeys(ANALYSED.values()):
        yield name, ANALYSES[name].values(requested.tidy.gather(name, cells))
