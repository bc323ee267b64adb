"""One run, from its configuration to its run directory: the only place where training happens."""

import functools
import logging
import os
import platform
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bench import __version__
from bench.allocator import allocator
from bench.atomic import write_bytes
from bench.config import RunConfig
from bench.content import hash_of, read_own
from bench.data.augmentation import Context
from bench.data.dataset import Batches, Dataset, DeviceData
from bench.data.partitions import Indices, partition_hash
from bench.data.root import data_root
from bench.data.sources.base import Source
from bench.device import device_name
from bench.engine.batches import EpochBatches
from bench.engine.checkpoint import load_state, save_state
from bench.engine.federation import Augment, Federation, FederationState
from bench.engine.objective import Objective
from bench.engine.participation import active_clients
from bench.engine.streams import numpy_stream
from bench.errors import UserError
from bench.experiments import Cell
from bench.gpu_claim import claim, claims_folder
from bench.models import build_model
from bench.records import (
    PARTITION,
    RunDirectory,
    code_fingerprint,
    identified,
    is_finished,
    partition_table,
    publish,
    snapshot_file,
    working_directory,
    write_csv,
    write_json,
)
from bench.user_code import failure, line_of

EVALUATION_BATCH = {"cpu": 250, "cuda": 2000}
"""Images at once: a CPU is no faster with more, and LeNet's feature maps of 2,000 CIFAR images take 1 GB."""

PROGRESS_SECONDS = 5.0
Progress = Callable[[str], None]
"""Takes the lines that a command shows while it works."""


def silent(line: str) -> None:
    """Progress that nobody watches."""


def _augment(config: RunConfig, dataset: Dataset, train: DeviceData) -> Augment | None:
    augmentations = config.training.augmentation
    if augmentations is None:
        return None
    context = Context(dataset.classes, black=(0 - train.shift) * train.factor)

    def augment(x: Tensor, y: Tensor, stream: np.random.Generator) -> tuple[Tensor, Tensor]:
        for augmentation in augmentations:
            x, y = augmentation.apply(x, y, context, stream)
        return x, y

    return augment


@functools.lru_cache(maxsize=2)
def load_dataset(source: Source, root: Path) -> Dataset:
    """A data set, read once per process."""
    return source.load(root)


@dataclass(frozen=True)
class Bench:
    """A run's working parts on a device: data, partition, objective and federation."""

    config: RunConfig
    dataset: Dataset
    split: list[Indices]
    train: DeviceData
    test: DeviceData
    objective: Objective
    federation: Federation

    @classmethod
    def set_up(cls, config: RunConfig, device: torch.device, split: list[Indices] | None = None) -> "Bench":
        """Build all parts; seed and configuration alone decide partition and initial model.

        `split`: that of a finished run, whose partition is not drawn again.
        """
        dataset = load_dataset(config.dataset, data_root())
        if split is None:
            split = config.partition.split(dataset.train, numpy_stream(config.seed, "partition"))
        train, test = dataset.on(device)
        model = build_model(config.model, dataset.image_shape, dataset.classes, config.seed)
        objective = Objective(model.to(device))
        settings = config.training
        method = config.method.recipe.build(config.method.hyperparameters)
        plan = EpochBatches(split, settings.local_epochs, settings.batch_size, config.seed)
        sizes = [len(indices) for indices in split]
        augment = _augment(config, dataset, train)
        federation = Federation(method, objective, train, plan, sizes, settings, config.seed, augment)
        return cls(config, dataset, split, train, test, objective, federation)

    def play_round(self, state: FederationState) -> tuple[FederationState, dict[str, Any]]:
        """One round with the scheduled clients, and its measurements."""
        config = self.config
        active = active_clients(config.participation, config.partition.clients, config.seed, state.round)
        state, measured = self.federation.run_round(state, active)
        diverged = int(not bool(torch.isfinite(state.w).all()))
        return state, {"round": state.round, **measured, "diverged": diverged}

    def evaluate(self, state: FederationState) -> dict[str, float]:
        """Loss and accuracy on the training images, all or a share, and on all test images."""
        row: dict[str, float] = {}
        w = self.federation.evaluated(state)
        size = EVALUATION_BATCH[w.device.type]
        share, n = self.config.evaluation.training_images, len(self.train)
        index = None if share is None or share >= n else torch.arange(share, device=w.device) * n // share
        for part, data in (("train", Batches(self.train, size, index)), ("test", Batches(self.test, size))):
            evaluated = self.objective.evaluate(w, data)
            row[f"{part}_loss"], row[f"{part}_accuracy"] = evaluated
        for name, other in self.federation.method.server.also_evaluated(state.server).items():
            accuracy = self.objective.evaluate(other, self.test.batches(size))[1]
            row[f"test_accuracy_{name}"] = accuracy
        return row


def train(
    config: RunConfig,
    out: Path,
    device: torch.device,
    checkpoint_every: int = 1,
    progress: Progress = silent,
    *,
    replace: bool = False,
) -> RunDirectory:
    """Train one run into the run directory `out`, resuming where an interrupted run of it stopped.

    Does nothing if the finished run is there already; a `UserError` if another configuration's is. With `replace`, a
    run of another configuration, of other code or of other images is trained anew, and removed when the new one is
    complete.
    """
    if is_finished(out, config, replace=replace):
        run = RunDirectory(out)
        if _has_same_data(run, config):
            return run
        if not replace:
            raise UserError(f"'{out}' was trained on other images than are there now; pass --replace, or another --out")
    bench = Bench.set_up(config, device)
    made = [folder for folder in out.parents if not folder.exists()]
    with working_directory(out, config) as work:
        log = _logger(work / "run.log")
        try:
            _train(bench, work, log, checkpoint_every, progress)
        except Exception as error:
            log.exception("failed")
            if not (work / "checkpoint.safetensors").exists():  # nothing to go on from
                shutil.rmtree(work)
                _remove_empty(made)
            if (told := _own_failure(config, error)) is None:
                raise
            raise told from None
        finally:
            for handler in log.handlers[:]:
                handler.close()
                log.removeHandler(handler)
        publish(work, out)
    return RunDirectory(out)


def _has_same_data(run: RunDirectory, config: RunConfig) -> bool:
    """Whether a user's own images are still those of the run. Published data sets keep what they hold."""
    if not config.dataset.own:
        return True
    return bool(run.provenance.get("data_hash") == load_dataset(config.dataset, data_root()).content_hash())


def _train(bench: Bench, work: Path, log: logging.Logger, checkpoint_every: int, progress: Progress) -> None:
    config = bench.config
    checkpoint = work / "checkpoint.safetensors"
    _keep_own_files(config, work)
    state = bench.federation.start(bench.objective.initial())
    data_hash = bench.dataset.content_hash()
    rows: list[dict[str, Any]] = []
    seconds_before = evaluating = 0.0
    if checkpoint.exists():
        state, about = load_state(checkpoint, state.w.device)
        if about["data_hash"] != data_hash:
            raise UserError(f"'{checkpoint}' was trained on other data than is there now; delete it to start over")
        rows, seconds_before, evaluating = about["rows"], about["seconds"], about["evaluating"]
        log.info("resumed after round %d", state.round)
        progress(f"seed {config.seed}: resumed after round {state.round} of {config.training.rounds}")
    else:
        log.info("started: %s", config.canonical_json())
    started = told = time.perf_counter()
    round_times: list[float] = []
    """Seconds of training in each round since the last evaluation, which is not counted."""

    def seconds() -> float:
        return seconds_before + time.perf_counter() - started

    def keep_snapshot() -> None:
        if state.round in config.snapshots:
            save_state(snapshot_file(work, state.round), state, {"identity": config.identity})

    while state.round < config.training.rounds and not (rows and rows[-1]["diverged"]):
        began = time.perf_counter()
        state, row = bench.play_round(state)
        round_times.append(time.perf_counter() - began)
        rows.append(row)
        keep_snapshot()
        if config.evaluation.is_due(state.round, config.training.rounds) and not row["diverged"]:
            began = time.perf_counter()
            row |= bench.evaluate(state)
            evaluating += time.perf_counter() - began
            line = (
                f"round {state.round} of {config.training.rounds}: local loss {row['local_loss']:.4f}, "
                f"test accuracy {row['test_accuracy']:.2f} %, {1000 * np.median(round_times):.0f} ms per round"
            )
            round_times.clear()
            log.info(line)
            if time.perf_counter() - told > PROGRESS_SECONDS:
                progress(f"seed {config.seed}: {line}")
                told = time.perf_counter()
        if state.round % checkpoint_every == 0:
            about = {"rows": rows, "seconds": seconds(), "evaluating": evaluating, "data_hash": data_hash}
            save_state(checkpoint, state, about)

    outcome = "diverged" if rows[-1]["diverged"] else "finished"
    log.info("%s after round %d, %.1f s in all, %.1f s of them evaluation", outcome, state.round, seconds(), evaluating)
    _write_results(bench, work, state, rows, _provenance(bench, outcome, seconds()))
    checkpoint.unlink(missing_ok=True)


def _write_results(
    bench: Bench, work: Path, state: FederationState, rows: list[dict[str, Any]], provenance: dict[str, Any]
) -> None:
    """What a finished run leaves; its configuration comes last."""
    config = bench.config
    write_csv(work / "metrics.csv", _metrics(rows))
    write_csv(work / PARTITION, partition_table(bench.split, bench.dataset.train.labels))
    final = FederationState(state.round, bench.federation.evaluated(state), {})
    save_state(work / "final.safetensors", final, {"identity": config.identity})
    write_json(work / "provenance.json", provenance)
    write_json(work / "config.json", config.model_dump(mode="json"))


def _remove_empty(folders: list[Path]) -> None:
    """Remove these folders, the innermost first, up to one that somebody uses."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def _own_failure(config: RunConfig, error: Exception) -> UserError | None:
    """The exception as one line about the user's own file: the model's if it was at work, else the method's."""
    if isinstance(error, UserError):
        return None
    blamed = [own for own in config.own_files if own.part == "method" or line_of(error, own.file) is not None]
    return failure(blamed[0].file, blamed[0].kind, error) if blamed else None


def _keep_own_files(config: RunConfig, folder: Path) -> None:
    """Copy the user's own files, byte for byte; a `UserError` if one has been edited since it was read."""
    for own in config.own_files:
        source = read_own(own.file, own.kind)
        if hash_of(source) != own.code:
            raise UserError(f"the {own.kind} '{own.file}' has been edited since the command began; start again")
        write_bytes(folder / own.copy_name, source)


_METRICS = (
    "round", "active", "lr", "local_loss", "client_drift",
    "download", "upload", "client_state", "server_state", "gradients",
    "train_loss", "train_accuracy", "test_loss", "test_accuracy", "diverged",
)  # fmt: skip


def _metrics(rows: list[dict[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(rows)
    extra = [name for name in table.columns if name not in _METRICS]
    return table.reindex(columns=[*_METRICS, *extra]).astype({"round": int, "active": int, "diverged": int})


def _provenance(bench: Bench, outcome: str, seconds: float) -> dict[str, Any]:
    device = bench.objective.device
    cuda = device.type == "cuda"
    return {
        "outcome": outcome,
        "identity": bench.config.identity,
        "seed": bench.config.seed,
        "code": {"version": __version__, "fingerprint": code_fingerprint(), **_git()},
        "libraries": {name: version(name) for name in ("torch", "numpy", "pandas", "safetensors")},
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if cuda else f"cpu ({platform.machine()})",
        "threads": torch.get_num_threads(),
        "allocator": allocator(),
        "dtype": str(bench.objective.dtype).removeprefix("torch."),
        "data_hash": bench.dataset.content_hash(),
        "partition_hash": partition_hash(bench.split),
        "parameters": bench.objective.layout.total,
        "seconds": round(seconds, 3),
        "process_peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "peak_gpu_memory_mib": torch.cuda.max_memory_allocated(device) // 2**20 if cuda else None,
    }


def _git() -> dict[str, Any]:
    def git(*arguments: str) -> str | None:
        try:
            return subprocess.run(
                ["git", "-C", str(Path(__file__).parent), *arguments], capture_output=True, text=True, check=True
            ).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return None

    package = Path(__file__).parent
    top = git("rev-parse", "--show-toplevel")
    if top is None or Path(top) != package.parent:  # no repository, or one that merely holds the installed package
        return {"commit": None, "dirty": None}
    return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--", str(package)))}


def _logger(file: Path) -> logging.Logger:
    log = logging.getLogger(f"fedflat.{file}")
    log.setLevel(logging.INFO)
    log.propagate = False
    handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    return log


def train_cell(
    experiment: str,
    cell: Cell,
    out: Path,
    device: torch.device,
    progress: Progress,
    checkpoint_every: int = 1,
    *,
    replace: bool = False,
) -> None:
    """Train all seeds of a cell into `out/seed-<s>`, then write all their metrics as `out/metrics.csv`."""
    tables: list[pd.DataFrame] = []
    for config in cell.runs:
        run = train(config, out / f"seed-{config.seed}", device, checkpoint_every, progress, replace=replace)
        metrics = run.metrics()
        tables.append(identified(metrics, experiment, cell, config).assign(code=run.code))
        progress(f"{cell.path}/seed-{config.seed}: {_outcome(metrics)}")
        if not run.of_this_code:
            progress("  (made by another version of the code; --replace trains it anew)")
    write_csv(out / "metrics.csv", pd.concat(tables, ignore_index=True))


def _outcome(metrics: pd.DataFrame) -> str:
    last = metrics.iloc[-1]
    if last["diverged"]:
        return f"diverged at round {last['round']:.0f}"
    return f"{last['test_accuracy']:.2f} % test accuracy after round {last['round']:.0f}"


def prepare_device(name: str, threads: int, progress: Progress = silent) -> torch.device:
    """The torch device `auto`, `cpu` or `cuda[:i]`, set up for reproducible results; one CPU thread count for all.

    `cuda`, and `auto` where there is a GPU, take one that no other process of this user has taken so; they wait for it.
    `cuda:i` takes that one in any case.
    """
    torch.set_num_threads(threads)
    if device_name(name) == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UserError("device cuda asked for, but torch sees no GPU (allowed here: auto, cpu)")
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        gpus = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]
        if ":" not in name:
            device = torch.device("cuda", claim(gpus, claims_folder(), progress))
        elif device.index >= len(gpus):
            raise UserError(f"device {device} asked for, but torch sees GPUs up to cuda:{len(gpus) - 1} only")
        torch.cuda.set_device(device)
    return device
