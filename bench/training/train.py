"""Training of a cell: one method in one setting, with all its seeds, into one run directory per seed."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import torch

from fedflat.bench.experiments.experiment import Cell
from fedflat.bench.experiments.results import METRICS, run_in
from fedflat.bench.experiments.run_config import RunConfig, score_words
from fedflat.bench.files.csv_json import write_checked_csv
from fedflat.bench.files.mounts import locks_on_this_machine_only
from fedflat.bench.host.memory import Budgets
from fedflat.bench.host.progress import Progress, Timer, silent
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.cell_trainer import due_runs
from fedflat.bench.training.choices import trainers
from fedflat.bench.training.directories.changed_inputs import changed_input
from fedflat.bench.training.directories.open_runs import no_empty_folders, open_runs
from fedflat.bench.training.directories.shared_runs import remove_lock, take_shared
from fedflat.bench.training.directories.working_directory import publish, remove_locks, remove_stale
from fedflat.bench.training.run_directory import RunDirectory, identified, is_finished
from fedflat.bench.training.training_run import TrainingRun

OnRoundOfRun = Callable[[Path, RunConfig, dict[str, float]], None]
"""Receives the folder and the configuration of a run, and the measurements of a round."""


def train_cell(
    experiment: str,
    cell: Cell,
    out: Path,
    device: torch.device,
    progress: Progress,
    *,
    replace: bool = False,
    on_round: OnRoundOfRun | None = None,
) -> None:
    """Train all seeds of a cell into `out/seed-<s>`, then write the metrics of all of them as `out/metrics.csv`.

    `on_round` as for `train_runs`.
    """
    folders = [run_in(out, config.seed) for config in cell.runs]
    earlier = {
        run.seed for run, folder in zip(cell.runs, folders, strict=True) if _is_up_to_date(run, folder, replace=replace)
    }
    runs = train_runs(cell.runs, folders, device, progress, replace=replace, on_round=on_round)
    by_seed = {config.seed: run for config, run in zip(cell.runs, runs, strict=True)}
    table = cell_metrics({"experiment": experiment, **cell.address.columns}, by_seed)
    for seed, run in by_seed.items():
        known = " (finished earlier, not trained again)" if seed in earlier else ""
        progress(f"{run_in(Path(cell.path), seed)}: {_outcome(table[table['seed'] == seed], run.config.score)}{known}")
        if not run.of_this_code:
            progress("  (trained by another version of the code; --replace trains it again)")
    write_checked_csv(out / METRICS, table)


def cell_metrics(cell: Mapping[str, str], runs: Mapping[int, RunDirectory]) -> pd.DataFrame:
    """The metrics and times of all runs of a cell, which are given by seed; `cell` as for `identified`.

    The column `missing_images` exists only if published images were missing: tables then judge no number of these runs.
    """
    tables = []
    for seed, run in runs.items():
        own = identified(run.metrics().merge(run.times(), on="round", how="left"), cell, run.identity, seed)
        missing = {"missing_images": run.missing_images} if run.missing_images else {}
        tables.append(own.assign(code=run.fingerprint, **missing))
    return pd.concat(tables, ignore_index=True)


def train_runs(
    configs: Sequence[RunConfig],
    folders: Sequence[Path],
    device: torch.device,
    progress: Progress = silent,
    *,
    replace: bool = False,
    budgets: Budgets | None = None,
    on_round: OnRoundOfRun | None = None,
) -> list[RunDirectory]:
    """Train runs that can share a cohort (`same_cohort`), such as all seeds of a cell, each into its own folder.

    Interrupted runs are resumed. A finished run is left as it is; one that another experiment of the same results has
    finished is taken. A `UserError` if a folder holds the run of another configuration; with `replace`, a run of
    another configuration, of other code or of other data is trained again, and the old one is removed when the new one
    is complete. `budgets`: the memory for the client states of each run, by default the configuration's; states beyond
    it are stored in a file, which changes no number. `on_round` receives the measurements of each round that is
    trained.
    """
    missing = list[tuple[RunConfig, Path]]()
    for config, folder in zip(configs, folders, strict=True):
        if _is_up_to_date(config, folder, replace=replace):
            remove_locks(folder)
            remove_lock(config, folder)
        else:
            missing.append((config, folder))
    if missing and (reason := locks_on_this_machine_only(missing[0][1])) is not None:
        progress(f"locks hold on this machine only ({reason}): no other machine may train these runs at the same time")
    with (
        no_empty_folders([folder for _, folder in missing]),
        take_shared(missing, progress, replace=replace) as untrained,
        open_runs(untrained, device, progress, budgets, replace=replace) as runs,
    ):
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


def _is_up_to_date(config: RunConfig, folder: Path, *, replace: bool) -> bool:
    """Whether the folder contains the finished run of this configuration, trained on the present data and model."""
    if not is_finished(folder, config, replace=replace):
        return False
    changed = changed_input(config, RunDirectory(folder).provenance)
    if changed is not None and not replace:
        raise UserError(f"{changed} have changed since '{folder}' was trained; pass --replace, or another --out")
    return changed is None


def _outcome(metrics: pd.DataFrame, score: str) -> str:
    last = metrics.iloc[-1]
    if last["diverged"]:
        return f"diverged at round {last['round']:.0f}"
    stopped = ", where it stopped" if last.get("stopped") else ""
    return f"{last[score]:.2f} % {score_words(score)} after round {last['round']:.0f}{stopped}"
