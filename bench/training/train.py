"""Training of a cell: one method in one setting, with all its seeds, into one run directory per seed."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from fedflat.bench.experiments.experiment import Cell
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.files.locks import remove_old_lock
from fedflat.bench.files.mounts import locks_on_this_machine_only
from fedflat.bench.host.memory import Budgets
from fedflat.bench.host.progress import Progress, Timer, silent
from fedflat.bench.metrics.columns import score_words
from fedflat.bench.training.cell_trainer import due_runs
from fedflat.bench.training.choices import trainers
from fedflat.bench.training.current import Replace, current_run, remarks
from fedflat.bench.training.directories.open_runs import open_runs
from fedflat.bench.training.directories.working_directory import publish, remove_stale
from fedflat.bench.training.lists import write_runs
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.training_run import TrainingRun

OnRoundOfRun = Callable[[Path, RunConfig, dict[str, float]], None]
"""Receives the folder and the configuration of a run, and the measurements of a round."""


def train_cell(
    experiment: str | None,
    cell: Cell,
    results: Path,
    device: torch.device,
    progress: Progress,
    *,
    replace: Replace = False,
    on_round: OnRoundOfRun | None = None,
) -> Path:
    """Train all seeds of a cell into the store of `results`, and list them as the runs of an experiment in this cell.

    Returns the folder with the runs. Without `experiment`, no list is written. `on_round` as for `train_runs`.
    """
    paths = ResultPaths(results)
    folders = [paths.run(config) for config in cell.runs]
    places = list(zip(cell.runs, folders, strict=True))
    earlier = {folder for config, folder in places if current_run(folder, config, replace=replace) is not None}
    runs = train_runs(cell.runs, folders, device, progress, replace=replace, on_round=on_round)
    for run in runs:
        for line in outcome(cell, run, device, known=run.path in earlier):
            progress(line)
    if experiment is not None:
        write_runs(paths, experiment, cell, runs)
    return folders[0].parent


def train_runs(
    configs: Sequence[RunConfig],
    folders: Sequence[Path],
    device: torch.device,
    progress: Progress = silent,
    *,
    replace: Replace = False,
    budgets: Budgets | None = None,
    on_round: OnRoundOfRun | None = None,
) -> list[RunDirectory]:
    """Train runs that can share a cohort (`same_cohort`), such as all seeds of a cell, each into its own folder.

    Interrupted runs are resumed. A run that is current (`current_run`) is left as it is; one that another process
    trains is waited for. With `replace`, runs that are trained again replace the old ones when they are complete.
    `budgets`: the memory for the client states of each run, by default the configuration's; states beyond it are stored
    in a file, which changes no number. `on_round` receives the measurements of each round that is trained.
    """
    missing = list[tuple[RunConfig, Path]]()
    for config, folder in zip(configs, folders, strict=True):
        if current_run(folder, config, replace=replace, progress=progress) is None:
            missing.append((config, folder))
        else:
            remove_old_lock(folder)
    if missing and (reason := locks_on_this_machine_only(missing[0][1])) is not None:
        progress(f"locks hold on this machine only ({reason}): no other machine may train these runs at the same time")
    with open_runs(missing, device, progress, budgets, replace=replace) as runs:
        for trainer in trainers(runs, progress) if runs else ():
            checkpoints = Timer(runs[0].config.engine.checkpoint_seconds)
            for due in due_runs(trainer.runs):
                for run, result in zip(due, trainer.train_round(due), strict=True):
                    row = run.record(result)
                    if on_round is not None:
                        on_round(run.folder, run.config, row)
                if checkpoints.is_due():
                    for run in due:
                        run.write_checkpoint()
            _publish(trainer.runs)
    return [RunDirectory(folder) for folder in folders]


def _publish(runs: Sequence[TrainingRun]) -> None:
    """Move runs that have ended to their folders."""
    if len(runs) > 1:  # a kill between two publications leaves no run to compute rounds again in a smaller company
        for run in runs:
            run.write_checkpoint()
    for run in runs:
        run.complete()
        publish(run.work, run.folder)
        remove_stale(run.folder, run.log.info)
        run.close()


def outcome(cell: Cell, run: RunDirectory, device: torch.device, *, known: bool) -> Iterator[str]:
    """What is said of a finished run; `known`: it was finished earlier."""
    yield f"{cell.path}/{run.path.name}: {_outcome(run)}{' (finished earlier, not trained again)' if known else ''}"
    if remark := remarks(run, device):
        yield f"  ({remark})"


def _outcome(run: RunDirectory) -> str:
    last, score = run.metrics().iloc[-1], run.config.score
    if last["diverged"]:
        return f"diverged at round {last['round']:.0f}"
    stopped = ", where it stopped" if last.get("stopped") else ""
    return f"{last[score]:.2f} % {score_words(score)} after round {last['round']:.0f}{stopped}"
