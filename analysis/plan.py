"""What a target of Snakemake would take, before anything starts: runs, hours and disk space.

Hours are those of training and evaluation, from gradients that are timed here and now on random images; a local step
takes `OVERHEAD` times its gradients (docs/performance.md). Hours of analyses are not in them.
"""

import functools
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from analysis.report import Report
from analysis.tidy import cells_of
from bench.config import RunConfig
from bench.data.root import data_root
from bench.engine.objective import Objective
from bench.errors import UserError, unknown
from bench.experiments import experiment_names
from bench.method_config import MethodConfig
from bench.methods.describe import measured_costs
from bench.models import Model, build_model
from bench.parts import load_dataset
from bench.records import is_complete

OVERHEAD = 1.2
FORWARD = 1 / 3
"""A forward pass in units of a gradient."""
REPEATS = 3


@dataclass(frozen=True)
class Estimate:
    """Of a part of an experiment: its runs, how many of them are finished, and hours and bytes of the others."""

    part: str
    runs: int
    finished: int
    hours: float
    bytes: float


def plan(target: str, results: Path, changes: dict[str, Any], device: torch.device) -> list[Estimate]:
    """One estimate per part of each experiment that a target such as fedgf_table_1, fedgf or all_tables needs.

    A `UserError` suggests the nearest target.
    """
    return [one for report, files in _needed(target, results, changes) for one in _estimates(report, files, device)]


def _needed(target: str, results: Path, changes: dict[str, Any]) -> Iterator[tuple[Report, list[Path]]]:
    """The experiments of a target, with the files that it is made from."""
    reports = {name: Report(name, results, changes) for name in experiment_names()}
    if target in ("all_tables", "all_figures"):
        for report in reports.values():
            if report.is_paper:
                yield report, _files(report, tables=target == "all_tables", figures=target == "all_figures")
        return
    name = max((n for n in reports if target == n or target.startswith(f"{n}_")), key=len, default=None)
    if name is None:
        raise unknown("target", target, [*reports, "all_tables", "all_figures"])
    report, rest = reports[name], target.removeprefix(name).removeprefix("_")
    kind, _, layout = rest.partition("_")
    if rest in ("", "runs"):
        paths = report.experiment.paths()
        runs = [results / "runs" / report.experiment.name / path / "metrics.csv" for path in paths]
        yield report, runs if rest else _files(report, tables=True, figures=True)
    elif kind == "table":
        yield report, report.table_inputs(layout)
    elif kind == "figure":
        yield report, report.figure_inputs(layout)
    else:
        raise UserError(
            f"'{target}' is no target with runs (allowed: {name}, {name}_runs, {name}_table_..., _figure_...)"
        )


def _files(report: Report, *, tables: bool, figures: bool) -> list[Path]:
    files = [file for name in report.table_names() for file in report.table_inputs(name)] if tables else []
    return files + ([file for name in report.figure_names() for file in report.figure_inputs(name)] if figures else [])


def _estimates(report: Report, files: Iterable[Path], device: torch.device) -> Iterator[Estimate]:
    by_part: dict[str, list[tuple[Path, RunConfig]]] = {}
    for path in cells_of(report.results, files):
        folder = report.results / "runs" / report.experiment.name / path
        runs = [(folder / f"seed-{run.seed}", run) for run in report.experiment.cell(path).runs]
        by_part.setdefault(path.split("/")[0], []).extend(runs)
    for part, pairs in by_part.items():
        left = [run for place, run in pairs if not is_complete(place)]
        hours = sum(seconds(run, device) for run in left) / 3600
        label = f"{report.experiment.name}: {part}"
        yield Estimate(label, len(pairs), len(pairs) - len(left), hours, sum(map(disk, left)))


def seconds(run: RunConfig, device: torch.device) -> float:
    """Of training and evaluation of a run on this machine."""
    training, evaluation = run.training, run.evaluation
    train, test, shape, classes = _facts(run)
    gradient = _gradient_seconds(run.model.model_dump_json(), shape, classes, training.batch_size, str(device))
    per_client = training.local_epochs * ceil(train / run.partition.clients / training.batch_size)
    gradients = _active(run) * per_client * _costs(run)["gradients"]
    images = min(train, evaluation.training_images or train) + test
    evaluations = ceil(training.rounds / evaluation.every)
    passes = images / training.batch_size * FORWARD
    return gradient * (training.rounds * gradients * OVERHEAD + evaluations * passes)


def disk(run: RunConfig) -> float:
    """Bytes of the models and states that a run keeps."""
    _, _, shape, classes = _facts(run)
    model = 4 * _parameters(run.model.model_dump_json(), shape, classes)
    costs, clients = _costs(run), run.partition.clients
    state = 1 + costs["server_state"] + clients * costs["client_state"]
    return model * (1 + len(run.snapshots) * state + len(run.rounds_of_local_models) * (1 + _active(run)))


def _active(run: RunConfig) -> float:
    clients, law = run.partition.clients, run.participation
    return law.active or (clients if law.probability is None else law.probability * clients)


def _facts(run: RunConfig) -> tuple[int, int, tuple[int, int, int], int]:
    """Training and test images, an image's shape, classes."""
    facts = getattr(run.dataset, "facts", None)
    if facts is not None:
        return facts.train, facts.test, facts.shape, facts.classes
    data = load_dataset(run.dataset, data_root())
    return len(data.train), len(data.test), data.image_shape, data.classes


def _costs(run: RunConfig) -> dict[str, float]:
    """What the method costs per round and step, in models and gradients: counted in a small run."""
    return _costs_of(run.method.model_dump_json())


@functools.cache
def _costs_of(method: str) -> dict[str, float]:
    config = MethodConfig.model_validate_json(method)
    return measured_costs(config.recipe, config.hyperparameters)


@functools.cache
def _objective(model: str, shape: tuple[int, int, int], classes: int, device: str) -> Objective:
    module = build_model(TypeAdapter(Model).validate_json(model), shape, classes, 0)
    return Objective(module.to(device), channels_last=device == "cpu")


def _parameters(model: str, shape: tuple[int, int, int], classes: int) -> int:
    return _objective(model, shape, classes, "cpu").layout.total


@functools.cache
def _gradient_seconds(model: str, shape: tuple[int, int, int], classes: int, batch: int, device: str) -> float:
    """Of one gradient of a mini-batch of random images; the median of a few, after one to warm up."""
    objective = _objective(model, shape, classes, device)
    stream = torch.Generator().manual_seed(0)
    x = torch.rand(batch, *shape, generator=stream).to(device)
    y = torch.randint(classes, (batch,), generator=stream).to(device)
    w = objective.initial()
    times = []
    for _ in range(1 + REPEATS):
        began = time.perf_counter()
        float(objective.gradient(w, x, y)[1])  # waits for the device
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def in_words(estimates: Sequence[Estimate]) -> str:
    """One line per part, and their sum."""
    total = Estimate(
        "all", *(sum(getattr(one, field) for one in estimates) for field in ("runs", "finished", "hours", "bytes"))
    )
    width = max(len(one.part) for one in [*estimates, total])
    lines = [f"{'part':{width}}  {'runs':>6}  {'finished':>8}  {'hours':>10}  {'GiB':>8}"]
    for one in [*estimates, total] if len(estimates) > 1 else estimates:
        gib = one.bytes / 2**30
        lines.append(f"{one.part:{width}}  {one.runs:6,}  {one.finished:8,}  {one.hours:10,.2f}  {gib:8,.2f}")
    return "\n".join(lines)
