"""Training, from configurations to run directories: the only place where it happens."""

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

from bench.data.root import data_root
from bench.engine.backends.keeping import Keeping
from bench.experiments.experiment import Cell
from bench.experiments.results import METRICS, run_in
from bench.experiments.run_config import RunConfig
from bench.files.atomic import write_bytes
from bench.files.csv_json import write_csv
from bench.host.memory import Budgets
from bench.host.progress import Progress, silent
from bench.input.content import read_own, short_hash
from bench.input.errors import UserError
from bench.input.user_code import failure, line_of
from bench.methods.base import CannotBatchError
from bench.training.calibration import Choice, choose, go_together
from bench.training.run_directory import RunDirectory, identified, is_complete, is_finished
from bench.training.run_setup import RunSetup, load_dataset, play_round
from bench.training.training_run import CHECKPOINT, CLIENTS, PlayedRound, TrainingRun
from bench.training.working_directory import publish, working_directory


def train(
    config: RunConfig,
    out: Path,
    device: torch.device,
    checkpoint_every: int = 1,
    progress: Progress = silent,
    *,
    replace: bool = False,
    budgets: Budgets | None = None,
) -> RunDirectory:
    """Train one run into the run directory `out`, as `train_runs` does."""
    return train_runs([config], [out], device, checkpoint_every, progress, replace=replace, budgets=budgets)[0]


def train_runs(
    configs: Sequence[RunConfig],
    places: Sequence[Path],
    device: torch.device,
    checkpoint_every: int = 1,
    progress: Progress = silent,
    *,
    replace: bool = False,
    budgets: Budgets | None = None,
) -> list[RunDirectory]:
    """Train the runs of one cell, which differ in their seeds, each into its run directory; interrupted ones go on
    where they stopped.

    Does nothing for a run that is finished already; a `UserError` if the run of another configuration is in its place.
    With `replace`, a run of another configuration, of other code or of other images is trained anew, and removed when
    the new one is complete. `budgets`: the memory that each run's client states may take, by default what the
    configuration says; the rest of them is in a file, which changes no result.
    """
    wanted = [
        (config, out) for config, out in zip(configs, places, strict=True) if not _is_done(config, out, replace=replace)
    ]
    if wanted:
        budgets = budgets or _budgets(wanted[0][0], device, len(wanted))
        _train_into(wanted, device, checkpoint_every, progress, budgets)
    return [RunDirectory(out) for out in places]


def _is_done(config: RunConfig, out: Path, *, replace: bool) -> bool:
    if not is_finished(out, config, replace=replace):
        return False
    if _has_same_data(RunDirectory(out), config):
        return True
    if not replace:
        raise UserError(f"'{out}' was trained on other images than are there now; pass --replace, or another --out")
    return False


def _has_same_data(run: RunDirectory, config: RunConfig) -> bool:
    """Whether a user's own images are still those of the run. Published data sets keep what they hold."""
    if not config.dataset.own:
        return True
    return bool(run.provenance.get("data_hash") == load_dataset(config.dataset, data_root()).content_hash())


def _train_into(
    wanted: Sequence[tuple[RunConfig, Path]],
    device: torch.device,
    checkpoint_every: int,
    progress: Progress,
    budgets: Budgets,
) -> None:
    benches = [RunSetup.build(config, device) for config, _ in wanted]
    threads = torch.get_num_threads()
    made = [folder for _, out in wanted for folder in out.parents if not folder.exists()]
    with ExitStack() as stack:
        works = [stack.enter_context(working_directory(out, config)) for config, out in wanted]
        runs: list[TrainingRun] = []
        try:
            places: list[Path] = []
            for (config, out), bench, work in zip(wanted, benches, works, strict=True):
                if is_complete(work):  # it had ended, but was not put into its place
                    for name in (CHECKPOINT, CLIENTS):  # as if it was killed just before they were removed
                        (work / name).unlink(missing_ok=True)
                    publish(work, out)
                    continue
                _keep_own_files(config, work)
                places.append(out)
                runs.append(TrainingRun(bench, work, checkpoint_every, progress, budgets))
            _train(runs, places)
        except Exception as error:
            for run in runs:
                if run.work.exists():  # not in its place yet
                    run.log.exception("failed")
            for work in works:
                if not (work / CHECKPOINT).exists() and not is_complete(work):  # nothing to go on from
                    shutil.rmtree(work, ignore_errors=True)
            _remove_empty(made)
            if (told := _own_failure(wanted[0][0], error)) is None:
                raise
            raise told from None
        finally:
            for run in runs:
                run.close()
            torch.set_num_threads(threads)


def _budgets(config: RunConfig, device: torch.device, runs: int) -> Budgets:
    """The memory that the client states of one of so many runs may take."""
    given = config.engine.client_memory
    if given is None:
        return Budgets.share(device, 0.25 / runs)
    return Budgets(device=given * 2**30 / runs, host=given * 2**30 / runs)


def _train(runs: Sequence[TrainingRun], places: Sequence[Path]) -> None:
    """Play all rounds, and put finished runs into their places.

    Runs that are trained together go in step; those which resumed behind the others catch up.
    """
    if not runs:
        return
    engine = _Engine(runs)
    waiting = list(zip(runs, places, strict=True))
    while waiting:
        group = waiting if engine.choice.together else waiting[:1]
        while active := [run for run, _ in group if not run.ended]:
            first = min(run.state.round for run in active)
            engine.play([run for run in active if run.state.round == first])
        for run, place in group:
            run.complete()
            publish(run.work, place)
            run.close()
        waiting = waiting[len(group) :]


class _Engine:
    """How some runs are computed, and the back end that does it."""

    def __init__(self, runs: Sequence[TrainingRun]) -> None:
        self._runs = runs
        first = runs[0]
        resumed = [run.choice for run in runs if run.choice is not None and run.choice.fits(first.device)]
        choice = resumed[0] if resumed else choose(first.bench, first.state, first.log.info)
        settings = first.config.engine
        if resumed and settings.backend not in ("auto", choice.backend):
            first.log.info("engine: goes on as it began; engine.backend %s is not used", settings.backend)
        going = [run for run in runs if not run.ended]
        benches, states = [run.bench for run in going], [run.state for run in going]
        self._take(replace(choice, together=go_together(benches, states, choice, first.log.info)))

    def _take(self, choice: Choice) -> None:
        self.choice = choice
        self._backend = choice.prepare([run.bench.objective for run in self._runs])
        for run in self._runs:
            run.choice = choice
            run.log.info("engine: %s", choice)

    def play(self, runs: Sequence[TrainingRun]) -> None:
        """One round of each of these runs, which are at the same one."""
        began = time.perf_counter()
        try:
            ends = self._round(runs)
        except CannotBatchError as error:
            if runs[0].config.engine.backend != "auto":
                raise UserError(f"engine.backend {self.choice.backend} is not possible here: {error}") from None
            runs[0].log.info("engine: this round is not possible in a %s: %s", self.choice.backend, error)
            self._take(replace(self.choice, backend="loop"))
            ends = self._round(runs)
        seconds = (time.perf_counter() - began) / len(runs)
        for run, end in zip(runs, ends, strict=True):
            run.record(end, seconds)

    def _round(self, runs: Sequence[TrainingRun]) -> list[PlayedRound]:
        benches, states = [run.bench for run in runs], [run.state for run in runs]
        if not runs[0].keeps_local_models:  # the same in all of them
            return [PlayedRound(*end) for end in play_round(benches, states, self._backend)]
        keeping = Keeping(self._backend)
        ends = play_round(benches, states, keeping)
        return [PlayedRound(*end, keeping.models(run.config.seed)) for run, end in zip(runs, ends, strict=True)]


def _remove_empty(folders: list[Path]) -> None:
    """Remove these folders, the innermost first, up to one that somebody uses."""
    for folder in sorted(set(folders), key=lambda folder: len(folder.parts), reverse=True):
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
        if short_hash(source) != own.code:
            raise UserError(f"the {own.kind} '{own.file}' has been edited since the command began; start again")
        write_bytes(folder / own.copy_name, source)


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
    places = [run_in(out, config.seed) for config in cell.runs]
    runs = train_runs(cell.runs, places, device, checkpoint_every, progress, replace=replace)
    tables: list[pd.DataFrame] = []
    for config, run in zip(cell.runs, runs, strict=True):
        metrics = run.metrics().merge(run.times(), on="round", how="left")
        tables.append(
            identified(metrics, {"experiment": experiment, **cell.address.columns}, config).assign(code=run.code)
        )
        progress(f"{cell.path}/seed-{config.seed}: {_outcome(metrics)}")
        if not run.of_this_code:
            progress("  (made by another version of the code; --replace trains it anew)")
    write_csv(out / METRICS, pd.concat(tables, ignore_index=True))


def _outcome(metrics: pd.DataFrame) -> str:
    last = metrics.iloc[-1]
    if last["diverged"]:
        return f"diverged at round {last['round']:.0f}"
    return f"{last['test_accuracy']:.2f} % test accuracy after round {last['round']:.0f}"
