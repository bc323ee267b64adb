"""Which engine's choice each run of a cell gets, and which runs are trained together.

The choice changes a run's last bits. So a run keeps the choice with which it began, a run that is computed again gets
the choice of the first time, and a choice is measured only for runs that were never computed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from fedflat.bench.host.progress import Progress, silent
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.calibration import choose_engine, train_together
from fedflat.bench.training.cell_trainer import CellTrainer
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.provenance import device_name
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.same_cohort import differ_in_seed_only
from fedflat.bench.training.training_run import TrainingRun


def trainers(runs: Sequence[TrainingRun], progress: Progress = silent) -> Iterator[CellTrainer]:
    """A trainer for each group of runs that are trained together, of runs that can all share a cohort (`same_cohort`).

    Runs that differ in more than their seeds are trained one by one unless hyper-parameters are by row. Each run
    records its choice before the first round of any of them. `progress` receives a line if back ends are timed.
    """
    groups: dict[EngineChoice, list[TrainingRun]] = {}
    for run, choice in _choices(runs, progress).items():
        run.begin(choice)
        groups.setdefault(replace(choice, together=False), []).append(run)
    for choice, group in groups.items():
        going_on = [run for run in group if not run.ended]
        setups, states = [run.setup for run in going_on], [run.state for run in going_on]
        alike = choice.by_row or all(differ_in_seed_only(group[0].config, run.config) for run in group)
        if alike and train_together(setups, states, choice, group[0].log.info):
            yield CellTrainer(group, replace(choice, together=True))
        else:
            yield from (CellTrainer([run], choice) for run in group)


def _choices(runs: Sequence[TrainingRun], progress: Progress) -> dict[TrainingRun, EngineChoice]:
    """Each run's own choice if it is known, else the known choice of another seed, else the measured one."""
    known = {run: _resumed(run) or _at_start(run) or _computed_before(run) for run in runs}
    others = next((choice for run, choice in known.items() if choice is not None and _is_usable(choice, run)), None)
    if others is None:
        others = choose_engine(runs[0].setup, runs[0].state, runs[0].log.info, progress)
    return {run: choice or others for run, choice in known.items()}


def _resumed(run: TrainingRun) -> EngineChoice | None:
    """The choice in the run's checkpoint."""
    choice, fixed = run.engine_choice, run.config.engine
    if choice is None or not choice.is_possible_on(run.device):
        return None
    if not choice.agrees_with(fixed):
        run.log.info("engine: continues as the run began; engine.backend %s is ignored", fixed.backend)
    return choice


def _at_start(run: TrainingRun) -> EngineChoice | None:
    """The choice of a process that was killed before the run's first checkpoint."""
    choice = run.choice_at_start
    if choice is None or not _is_usable(choice, run):
        return None
    run.log.info("engine: as the run began")
    return choice


def _computed_before(run: TrainingRun) -> EngineChoice | None:
    """The choice of the finished run of this identity that is to be replaced."""
    choice = _choice_in(run.folder, run)
    if choice is None or not _is_usable(choice, run):
        return None
    run.log.info("engine: as in '%s'", run.folder)
    return choice


def _choice_in(folder: Path, run: TrainingRun) -> EngineChoice | None:
    """The first choice of the finished run in a folder; None if it is another run, or of another device."""
    try:
        about = RunDirectory(folder).provenance
        if about["identity"] != run.config.identity or about["device"] != device_name(run.device):
            return None
        return EngineChoice.from_json(about.get("engine_at_start", about["engine"]))  # earlier versions recorded one
    except (UserError, KeyError, ValueError):  # no run, of another version, or damaged
        return None


def _is_usable(choice: EngineChoice, run: TrainingRun) -> bool:
    """Whether the fixed settings, the device and the number of threads of this process allow the choice."""
    allowed = choice.agrees_with(run.config.engine) and choice.is_possible_on(run.device)
    return allowed and choice.threads <= torch.get_num_threads()
