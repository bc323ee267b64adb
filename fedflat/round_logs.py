"""Loggers that receive the measurements of each round: TensorBoard, or a function of the user."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fedflat.bench.code.modules import checked_imports
from fedflat.bench.code.named_code import trust_file
from fedflat.bench.code.user_code import failure, run_file
from fedflat.bench.experiments.results import ResultPaths
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.host.progress import Progress, silent
from fedflat.bench.input.arguments import checked
from fedflat.bench.input.content import expanded, read_own
from fedflat.bench.input.errors import UserError, unknown

OnRound = Callable[[dict[str, float]], object]
"""Receives the measurements of a round by name, `round` (from 1) among them."""

KIND = "logger"
TENSORBOARD = "tensorboard"


@checked
def tensorboard(folder: str | Path) -> OnRound:
    """A logger for TensorBoard, which writes each measurement as a scalar into a folder: `on_round` of `simulate`.

    Rounds that are trained again replace those of an earlier process. A `UserError` if TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an optional package
    except ImportError:
        raise UserError("TensorBoard is not installed; install it with: pip install tensorboard") from None
    writers: list[Any] = []

    def on_round(row: dict[str, float]) -> None:
        step = int(row["round"])
        if not writers:
            writers.append(SummaryWriter(str(folder), purge_step=step))
        for name, value in row.items():
            if name != "round":
                writers[0].add_scalar(name, value, step)
        writers[0].flush()  # a killed process loses nothing

    return on_round


class RunLogs:
    """The loggers of several runs; each is started before its run's first round in this process.

    `reference`: `tensorboard`, whose files are in `results`/tensorboard, or FILE.py:FUNCTION. The function is called
    with the folder and the configuration of a run, and returns an `OnRound`; its method `close`, if it has one, is
    called when the run ends, and at the latest at the end of the block of `with`. A logger that fails ends its work,
    and not the run: `say` reports it.
    """

    def __init__(self, reference: str, results: Path, say: Progress = silent) -> None:
        self._results, self._say = results, say
        self._file: Path | None = None
        self._loggers: dict[Path, OnRound | None] = {}  # None: it has ended
        if reference == TENSORBOARD:
            tensorboard(results)  # a missing package is reported before training
            return
        place, _, function = reference.rpartition(":")
        if not place.endswith(".py") or not function:
            raise UserError(f"unknown logger '{reference}' (allowed: {TENSORBOARD}, path/to/file.py:function)")
        self._file = expanded(place, f"the path of the {KIND}")
        trust_file(self._file, KIND)
        with checked_imports(from_current_folder=True):
            module = run_file(self._file, read_own(self._file, KIND), KIND)
        start = getattr(module, function, None)
        if not callable(start):
            functions = [name for name, value in vars(module).items() if callable(value) and name[0] != "_"]
            raise unknown(f"function of the {KIND} '{self._file}'", function, functions)
        self._start: Callable[[str, dict[str, Any]], OnRound] = start

    def __call__(self, folder: Path, config: RunConfig, row: dict[str, float]) -> None:
        """Pass on a round of the run in this folder."""
        if folder not in self._loggers:
            self._try(folder, partial(self._start_for, folder, config))
        if (logger := self._loggers[folder]) is not None:
            self._try(folder, partial(logger, row))
        if row["round"] == config.training.rounds or row["diverged"]:
            self._close(folder)

    def __enter__(self) -> "RunLogs":
        return self

    def __exit__(self, *error: object) -> None:
        for folder in list(self._loggers):
            self._close(folder)

    def _start_for(self, folder: Path, config: RunConfig) -> None:
        if self._file is None:
            self._loggers[folder] = tensorboard(self._results / TENSORBOARD / self._place(folder))
        else:
            self._loggers[folder] = self._start(str(folder), config.model_dump(mode="json"))

    def _close(self, folder: Path) -> None:
        logger, self._loggers[folder] = self._loggers[folder], None
        if callable(close := getattr(logger, "close", None)):
            self._try(folder, close)

    def _try(self, folder: Path, call: Callable[[], object]) -> None:
        """Call the logger of a run; if it fails, say which line of its file, and call it no more."""
        try:
            call()
        except Exception as error:  # the user's code may fail in any way
            self._loggers[folder] = None
            where = f"{KIND} {TENSORBOARD}: {error}" if self._file is None else failure(self._file, KIND, error)
            self._say(f"{folder.name}: {where}; the run goes on without it")

    def _place(self, folder: Path) -> Path:
        """The folder relative to that of all runs."""
        return folder.resolve().relative_to(ResultPaths(self._results).store.resolve())
