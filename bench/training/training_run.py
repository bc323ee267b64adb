"""A run in training: its state, its measurements so far, its checkpoint and its log, in its working directory."""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedflat.bench.engine.checkpoint import CHECKPOINTS, OF_ANOTHER_RUN, Checkpoint, save_models, save_state
from fedflat.bench.engine.client_store import ClientStates, ClientStore
from fedflat.bench.engine.divergence import evaluation_diverged
from fedflat.bench.engine.federation import FederationState
from fedflat.bench.experiments.results import METRICS, PARTITION
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.files.csv_json import read_checked_json, write_checked_json, write_csv
from fedflat.bench.host.memory import Budgets
from fedflat.bench.host.progress import PROGRESS_SECONDS, Progress, Timer
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.columns import score_words
from fedflat.bench.training.client_accuracies import ClientAccuracies
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.provenance import computed_on, device_name, provenance
from fedflat.bench.training.run_directory import (
    BY_CLIENT,
    CONFIG,
    FINAL,
    LOG,
    PROVENANCE,
    TIMES,
    TIMES_COLUMNS,
    local_models_file,
    metrics_columns,
    partition_table,
    snapshot_file,
)
from fedflat.bench.training.run_setup import RunSetup

CLIENTS, AT_START = "clients.slots", "engine.json"
"""Files of an unfinished run: the states of its clients, and how the engine computes its first round."""

EARLIER_STATES = 32
"""How many stored states are searched for vectors that need not be stored again. Each takes about a millisecond: with
all of them, a run that stores a state after each of 1,000 rounds would spend ten minutes on this."""


class RoundResult(NamedTuple):
    """The state after a round, its measurements, its local models by client if they are to be saved, its duration."""

    state: FederationState
    measurements: dict[str, float]
    local_models: Mapping[int, Tensor]
    seconds: float


class TrainingRun:
    """A run in training: its files are in `work`, which is renamed to `folder` at the end.

    After kill -9, it is resumed at its last checkpoint.
    """

    def __init__(
        self,
        setup: RunSetup,
        work: Path,
        folder: Path,
        progress: Progress,
        budgets: Budgets,
    ) -> None:
        self.setup = setup
        self.work = work
        self.folder = folder
        self.log = _logger(work / LOG)
        self.engine_choice: EngineChoice | None = None
        """How the engine computes the run; None until it is chosen."""
        self._computed_on: list[dict[str, Any]] = []
        self._progress = progress
        self._data_hash = setup.dataset.content_hash()
        self._store = ClientStore(work / CLIENTS, budgets)
        self._checkpoint = Checkpoint(work, self._store)
        self._rows: list[dict[str, Any]] = []
        self._times: list[dict[str, float]] = []
        self._since_evaluation: list[float] = []
        self._reports = Timer(PROGRESS_SECONDS)
        self.state = setup.federation.start(setup.objective.initial())
        self.state.clients = ClientStates(self._store)
        self._bytes_by_client = 0
        if not self._is_resumed():
            self.log.info("started: %s", setup.config.canonical_json())
        self._by_client = (
            ClientAccuracies(work / BY_CLIENT, self._bytes_by_client) if self.config.evaluation.by_client else None
        )

    @property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return self.setup.config

    @property
    def choice_at_start(self) -> EngineChoice | None:
        """The choice of the process that began this run on this device; None if there was none."""
        device, choice = self._recorded_start()
        return choice if device == device_name(self.device) else None

    def _recorded_start(self) -> tuple[str | None, EngineChoice | None]:
        """The device and the choice of the process that began this run; None if they are not known."""
        file = self.work / AT_START
        if not file.exists():
            return None, None
        try:
            recorded = read_checked_json(file, "the engine's choice is made anew")
            return str(recorded["device"]), EngineChoice.from_json(recorded["choice"])
        except UserError as error:
            self.log.info(str(error))
        except (ValueError, KeyError):  # of another version
            self.log.info("'%s' holds no choice of the engine", file)
        return None, None

    def begin(self, choice: EngineChoice) -> None:
        """Record how the engine computes the first round: if it is killed before a checkpoint, it begins so again."""
        if self.engine_choice is None:
            write_checked_json(self.work / AT_START, {"device": device_name(self.device), "choice": choice.as_json()})
        self.engine_choice = choice
        here = computed_on(self.device)
        if not self._computed_on or here != {name: self._computed_on[-1][name] for name in here}:
            self._computed_on.append({"after_round": self.state.round, **here})

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A copy of the metrics of each finished round."""
        return [dict(row) for row in self._rows]

    @property
    def seconds(self) -> float:
        """The seconds of training and evaluation of all finished rounds."""
        return sum(row["train_seconds"] + row.get("evaluation_seconds", 0.0) for row in self._times)

    @property
    def ended(self) -> bool:
        """Whether all rounds are finished, or the last one diverged or reached the score at which the run stops."""
        last = self._rows[-1] if self._rows else {}
        ended_early = bool(last.get("diverged") or last.get("stopped"))
        return ended_early or self.state.round >= self.config.training.rounds

    @property
    def saves_local_models(self) -> bool:
        """Whether the local models of the next round are saved."""
        return self.state.round + 1 in self.config.rounds_of_local_models

    def _is_resumed(self) -> bool:
        """Resume at the newest intact checkpoint; False if there is none, so that the run starts anew."""
        found = self._checkpoint.load(self.state.w.device, self._report)
        if found is None:
            return False
        self.state, about = found
        if about.get("identity", self.config.identity) != self.config.identity:  # earlier versions did not record it
            raise UserError(f"'{self.work / CHECKPOINTS[0]}' {OF_ANOTHER_RUN}; delete '{self.work}' to train anew")
        changed = self.setup.changed_model(about.get("model_hash"))
        if about["data_hash"] != self._data_hash:
            changed = "the training data"
        if changed is not None:
            raise UserError(
                f"{changed} have changed since '{self.work}' was written; delete it to train from the start"
            )
        self._rows, self._times = about["rows"], about["times"]
        self._bytes_by_client = about.get("bytes_by_client", 0)
        self.engine_choice = EngineChoice.from_json(about["engine"])
        self._computed_on = about.get("computed_on", [])  # earlier versions did not record it
        self.log.info("resumed after round %d", self.state.round)
        self._progress(
            f"seed {self.config.seed}: resumed after round {self.state.round} of {self.config.training.rounds}"
        )
        return True

    def _report(self, line: str) -> None:
        self.log.info(line)
        self._progress(f"seed {self.config.seed}: {line}")

    def record(self, result: RoundResult) -> dict[str, Any]:
        """Accept the result of a round; evaluate and save if due. Returns a copy of the round's row of the metrics."""
        config = self.config
        state, measurements, local_models, seconds = result
        measurements = {**measurements, **self.setup.counted(self.state), "diverged": int(measurements["diverged"])}
        row: dict[str, Any] = {"round": state.round, **measurements}
        self.state = state
        self._rows.append(row)
        self._times.append({"round": state.round, "train_seconds": seconds})
        self._since_evaluation.append(seconds)
        if state.round in config.snapshots:
            before = [finished for finished in config.snapshots if finished < state.round][-EARLIER_STATES:]
            earlier = [snapshot_file(self.work, finished) for finished in before]
            save_state(snapshot_file(self.work, state.round), state, {"identity": config.identity}, earlier)
        if local_models:
            about = {"identity": config.identity, "round": state.round}
            w_global = self.setup.federation.evaluated(state)
            save_models(local_models_file(self.work, state.round), local_models, w_global, about)
        if state.round in config.evaluated_rounds and not row["diverged"]:
            self._evaluate(row)
        if config.evaluation.until is not None:
            reached = not row["diverged"] and config.ends_after(self._rows)
            row["stopped"] = int(reached and state.round < config.training.rounds)
        return dict(row)

    def write_checkpoint(self) -> None:
        """Write what is needed to resume the run after the last recorded round."""
        assert self.engine_choice is not None
        inputs = {"data_hash": self._data_hash, "model_hash": self.setup.model_hash}
        engine = {"engine": self.engine_choice.as_json(), "computed_on": self._computed_on}
        about: dict[str, Any] = {
            "identity": self.config.identity,
            "rows": self._rows,
            "times": self._times,
            **inputs,
            **engine,
        }
        if self._by_client is not None:
            about["bytes_by_client"] = self._by_client.size
        self._checkpoint.save(self.state, about)

    def _evaluate(self, row: dict[str, Any]) -> None:
        began = time.perf_counter()
        scores = self.setup.evaluate(self.state)
        row |= scores | {"diverged": int(evaluation_diverged(scores))}
        if self._by_client is not None:
            self._by_client.add(self.state.round, self.setup.evaluate_clients(self.state))
        self._times[-1]["evaluation_seconds"] = time.perf_counter() - began
        score = self.config.score
        line = (
            f"round {self.state.round} of {self.config.training.rounds}: local loss {row['local_loss']:.4f}, "
            f"{score_words(score)} {row[score]:.2f} %, {1000 * np.median(self._since_evaluation):.0f} ms per round"
        )
        self._since_evaluation.clear()
        self.log.info(line)
        if self._reports.is_due():
            self._progress(f"seed {self.config.seed}: {line}")

    def complete(self) -> None:
        """Write the files of a finished run, its configuration last, and remove the checkpoint."""
        config, work, state = self.config, self.work, self.state
        last = self._rows[-1]
        outcome = "diverged" if last["diverged"] else "stopped" if last.get("stopped") else "finished"
        times = pd.DataFrame(self._times, columns=TIMES_COLUMNS)
        training, evaluation = times["train_seconds"].sum(), times["evaluation_seconds"].sum()
        self.log.info(
            "%s after round %d, %.1f s of training, %.1f s of evaluation", outcome, state.round, training, evaluation
        )
        if state.clients:
            self.log.info("states of %d clients, %d of them in memory", len(state.clients), state.clients.in_memory)
        # Their hashes are in the provenance.
        write_csv(work / METRICS, _metrics(self._rows, config.evaluation.subset, self.setup.evaluated_columns()))
        write_csv(work / TIMES, times.astype({"round": int}))
        write_csv(work / PARTITION, partition_table(self.setup.drawn, self.setup.dataset.train.labels))
        final = self.setup.federation.final(state)
        save_state(work / FINAL, final, {"identity": config.identity})
        assert self.engine_choice is not None
        _, at_start = self._recorded_start()
        about = provenance(
            self.setup,
            self._data_hash,
            (at_start or self.engine_choice).as_json(),
            self.engine_choice.as_json(),
            self._computed_on,
            outcome,
            seconds=float(training + evaluation),
            tables={name: short_hash((work / name).read_bytes()) for name in self._tables()},
        )
        write_checked_json(work / PROVENANCE, about)
        write_checked_json(work / CONFIG, config.model_dump(mode="json"))
        self._checkpoint.remove()
        (work / AT_START).unlink(missing_ok=True)

    def _tables(self) -> list[str]:
        """The names of the tables whose hashes are recorded."""
        return [METRICS, TIMES, *([] if self._by_client is None else [BY_CLIENT])]

    @property
    def device(self) -> torch.device:
        """The device of the run."""
        return self.setup.objective.device

    def close(self) -> None:
        """Close the log and release the clients' states, because other runs may follow."""
        self.state = FederationState(self.state.round, self.state.w, {})
        for handler in self.log.handlers[:]:
            handler.close()
            self.log.removeHandler(handler)


def _metrics(rows: list[dict[str, Any]], subset: str, evaluated: Sequence[str]) -> pd.DataFrame:
    """The rows as a table; it has the columns of evaluations, even if the run diverged before the first one."""
    table, columns = pd.DataFrame(rows), metrics_columns(subset)
    extra = [name for name in dict.fromkeys([*table.columns, *evaluated]) if name not in columns]
    return table.reindex(columns=[*columns, *extra]).astype({"round": int, "active": int, "diverged": int})


class _LogFile(logging.FileHandler):
    """The log of a run. Lines that cannot be written are lost, because a full disk stops the run with another error."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name in logging
        """Print no traceback."""

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            super().close()


def _logger(file: Path) -> logging.Logger:
    log = logging.getLogger(f"fedflat.{file}")
    log.setLevel(logging.INFO)
    log.propagate = False
    # Names of folders, and errors in code of users, may have any characters, in any locale.
    handler = _LogFile(file, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    return log
