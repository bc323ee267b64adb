"""Tuning of a cell: one trial after the other is trained up to the round after which trials are compared."""

import time

import torch

from bench.files.locks import folder_lock
from bench.host.progress import Progress
from bench.input.errors import UserError
from bench.input.user_code import FailingCodeError
from bench.training.code_version import code_fingerprint
from bench.training.directories.open_runs import no_empty_folders
from bench.training.unfinished import train_to
from bench.tuning.cell_search import DIVERGED, FAILED, FILES, TRAINED, CellSearch, Result
from bench.tuning.halving import Step
from bench.tuning.score import score


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
            while (step := search.next_step) is not None:
                search.results[step] = _result(search, step, device)
                search.write()
                _report(search, step, progress)


def _result(search: CellSearch, step: Step, device: torch.device) -> Result:
    """Train a trial up to its next rung."""
    trial, began, code = search.trials[step.trial], time.perf_counter(), code_fingerprint()
    try:
        trained = train_to(trial.run, search.run_folder(trial), search.rungs[step.rung], device)
    except FailingCodeError as error:
        return Result(FAILED, None, time.perf_counter() - began, code, str(error))
    last = trained.rows[-1]
    if last["diverged"]:
        return Result(DIVERGED, None, trained.seconds, code, f"diverged in round {last['round']}")
    return Result(TRAINED, score(search.report, trained.rows, search.judged[step.rung]), trained.seconds, code)


def _report(search: CellSearch, step: Step, progress: Progress) -> None:
    """One line for each rung that has ended, and for each trial that has failed."""
    result, path = search.results[step], search.cell.path
    if result.score is None:
        progress(f"{path}: trial {step.trial}: {result.reason}")
    following = search.next_step
    if following is not None and following.rung == step.rung:
        return
    scores = [
        (one.score, -at.trial) for at, one in search.results.items() if at.rung == step.rung and one.score is not None
    ]
    best = "all trials failed"
    if scores:
        value, trial = max(scores)
        best = f"best validation accuracy {value:.2f} % (trial {-trial})"
    left = f"{len(search.going_on)} go on" if following is not None else "the search has ended"
    progress(f"{path}: after round {search.rungs[step.rung]} of {search.rungs[-1]}: {best}; {left}")
