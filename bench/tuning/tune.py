"""Tuning of a cell: one trial after the other is trained up to the round after which trials are compared."""

import time
from collections.abc import Iterator

import torch

from fedflat.bench.code.user_code import FailingCodeError
from fedflat.bench.files.locks import folder_lock
from fedflat.bench.host.progress import PROGRESS_SECONDS, Progress, Timer
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.code_version import code_fingerprint
from fedflat.bench.training.directories.open_runs import no_empty_folders
from fedflat.bench.training.unfinished import train_to
from fedflat.bench.tuning.cell_search import DIVERGED, FAILED, FILES, TRAINED, CellSearch, StepResult
from fedflat.bench.tuning.halving import RungStep
from fedflat.bench.tuning.score import score


def tune_cell(search: CellSearch, device: torch.device, progress: Progress, *, replace: bool = False) -> None:
    """Take all steps of a search that have not been taken; a search that was killed goes on.

    A trial whose code fails, or that diverges, counts. With `replace`, stored results are not used.
    """
    with no_empty_folders([search.folder / FILES[0]]):
        search.folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(search.folder) as is_free:
            if not is_free:
                raise UserError(f"another process is tuning '{search.folder}'")
            if replace:
                for name in FILES:
                    (search.folder / name).unlink(missing_ok=True)
            search.read()
            if search.next_step is None:
                search.write()
            reports = Timer(PROGRESS_SECONDS)
            while (step := search.next_step) is not None:
                search.results[step] = _result(search, step, device)
                search.write()
                for line in _news(search, step, reports):
                    progress(f"{search.cell.path}: {line}")


def _result(search: CellSearch, step: RungStep, device: torch.device) -> StepResult:
    """Train a trial up to its next rung."""
    trial, began, code = search.trials[step.trial], time.perf_counter(), code_fingerprint()
    try:
        [trained] = train_to([trial.run], [search.run_folder(trial)], search.rungs[step.rung], device)
    except FailingCodeError as error:
        before = search.results[RungStep(step.trial, step.rung - 1)].seconds if step.rung else 0.0
        return StepResult(FAILED, None, before + time.perf_counter() - began, code, str(error))
    last = trained.rows[-1]
    if last["diverged"]:
        return StepResult(DIVERGED, None, trained.seconds, code, f"diverged in round {last['round']}")
    return StepResult(TRAINED, score(search.report, trained.rows, search.judged[step.rung]), trained.seconds, code)


def _news(search: CellSearch, step: RungStep, reports: Timer) -> Iterator[str]:
    """A line for a trial that has failed, for a rung that has ended, and in between every few seconds."""
    if search.results[step].score is None:
        yield f"trial {step.trial}: {search.results[step].reason}"
    following, where = search.next_step, f"after round {search.rungs[step.rung]} of {search.rungs[-1]}"
    scores = {at.trial: one.score for at, one in search.results.items() if at.rung == step.rung}
    if following is not None and following.rung == step.rung:
        if reports.is_due():
            yield f"{where}: {len(scores)} of {len(search.going_on)} trials"
        return
    ranked = sorted((-value, trial) for trial, value in scores.items() if value is not None)
    best = f"best validation accuracy {-ranked[0][0]:.2f} % (trial {ranked[0][1]})" if ranked else "all trials failed"
    yield f"{where}: {best}; {'the search has ended' if following is None else f'{len(search.going_on)} go on'}"
