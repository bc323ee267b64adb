"""The search in one cell: its trials, what they have scored so far, and the file that stores this."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedflat.bench.data.root import data_root
from fedflat.bench.experiments.data_sets import check_before_loading
from fedflat.bench.experiments.experiment import Cell, Experiment
from fedflat.bench.experiments.results import TRIALS
from fedflat.bench.files.csv_json import read_checked_csv, write_checked_csv
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError, located
from fedflat.bench.training.run_setup import load_dataset
from fedflat.bench.tuning.given import searched
from fedflat.bench.tuning.halving import RungStep, enumerated, next_step, rounds_of_rungs, winner
from fedflat.bench.tuning.ranges import Ranges
from fedflat.bench.tuning.score import LAST, evaluated_rounds
from fedflat.bench.tuning.trials import Trial, as_trial, trials

PROGRESS = "progress.csv"
"""The file with all results so far. Snakemake deletes the file of the ended search before it is made again."""

FILES = (PROGRESS, TRIALS)

SEED_DISTANCE = 1000
"""How far the default seed of tuning is from the first seed of the experiment."""

TRAINED, DIVERGED, FAILED = "trained", "diverged", "failed"
"""Outcomes of a step, as long as its rung goes on."""

_TEXTS = ("score", "outcome", "reason", "identity", "code", "search")
"""Columns that are read as text: scores, too, because earlier versions of pandas change their last digits."""
_NUMBERS = ("trial", "rung", "round", "seconds")


@dataclass(frozen=True)
class StepResult:
    """What a step of the search gave.

    `score` in percent; None if the trial diverged or failed, for the stated reason. `seconds` of training and
    evaluation since the trial began; `code`: the fingerprint of the code that trained it.
    """

    outcome: str
    score: float | None
    seconds: float
    code: str
    reason: str = ""


@dataclass
class CellSearch:
    """The search in one cell, with the first `count` of the `trials`; further ones belong to an earlier search.

    `rungs`: the rounds after which trials are compared; `judged`: for each rung, the rounds whose accuracies give the
    score; `results`: of the steps that have been taken; `stored`: the steps in each file.
    """

    cell: Cell
    folder: Path
    report: str
    rungs: tuple[int, ...]
    judged: tuple[list[int], ...]
    ranges: Ranges
    trials: list[Trial]
    count: int
    results: dict[RungStep, StepResult] = field(default_factory=dict)
    stored: dict[str, list[RungStep]] = field(default_factory=dict)

    @classmethod
    def of(cls, experiment: Experiment, path: str, folder: Path) -> "CellSearch":
        """The search in a cell, without results; a `UserError` if its ranges are wrong."""
        cell, tuning = experiment.cell(path), experiment.tuning
        base, report = cell.runs[0], experiment.report or LAST
        rungs = rounds_of_rungs(tuning.rungs, base.training.rounds)
        judged = tuple(evaluated_rounds(report, base.evaluation, base.training.rounds, rung) for rung in rungs)
        try:
            ranges = searched(experiment, cell)
            first = as_trial(base, seed_of(experiment), tuning.validation, sorted(set().union(*judged)))
            found = trials(first, ranges, tuning.trials)
        except UserError as error:
            raise located(path, error) from None
        return cls(cell, folder, report, rungs, judged, ranges, found, len(found))

    @cached_property
    def identity(self) -> str:
        """Hash of what two searches have in common whose results can be used together; not the number of trials."""
        first = self.trials[0].run
        data = None
        if first.dataset.own:
            check_before_loading(first, data_root())
            data = load_dataset(first.dataset, data_root()).content_hash()
        ranges = {place: str(search) for place, search in self.ranges.items()}
        return short_hash(json.dumps([first.identity, ranges, self.rungs, self.judged, self.report, data]))

    def read(self) -> None:
        """Read the stored results, also those of more trials. A `UserError` if they are those of another search."""
        for name in FILES:
            found = self._read(self.folder / name)
            self.results |= found
            self.stored[name] = sorted(found)

    def _read(self, file: Path) -> dict[RungStep, StepResult]:
        """The results in a file; none if there is no file."""
        if not file.is_file():
            return {}
        remedy, columns = "delete it, and tune the cell again", [*_NUMBERS, *_TEXTS]
        texts, whole = (*self.cell.address.columns, *self.ranges, *_TEXTS), ("trial", "rung", "round")
        table = read_checked_csv(file, columns, remedy, texts=texts, whole=whole, keys=("trial", "rung"))[columns]
        if (table["search"] != self.identity).any():
            raise UserError(
                f"'{file}' holds trials of another search (other values, ranges, seed, rungs or data, or an edited "
                "file): choose another folder with --results, or replace them with --replace (Snakemake: --config "
                "replace=true)"
            )
        if (needed := int(table["trial"].max()) + 1) > len(self.trials):
            self.trials = trials(self.trials[0].run, self.ranges, needed)
        found: dict[RungStep, StepResult] = {}
        for row in table.astype(object).where(table.notna(), None).to_dict("records"):
            score = None if row["score"] is None else float(row["score"])
            outcome = row["outcome"] if score is None else TRAINED
            if row["trial"] < len(self.trials) and row["identity"] == self.trials[row["trial"]].run.identity:
                step = RungStep(row["trial"], row["rung"] - 1)
                found[step] = StepResult(outcome, score, row["seconds"], row["code"], row["reason"] or "")
        return found

    @property
    def next_step(self) -> RungStep | None:
        """The step that is taken next; None if the search has ended."""
        return next_step(self.count, len(self.rungs), self._scores)

    @property
    def winner(self) -> Trial | None:
        """The best trial; None if all have failed."""
        best = winner({step: self._scores[step] for step in self._steps_taken})
        return None if best is None else self.trials[best.trial]

    @property
    def going_on(self) -> set[int]:
        """The numbers of the trials that have not been stopped."""
        return {step.trial for step in self._steps[-1]}

    @property
    def _scores(self) -> dict[RungStep, float | None]:
        return {step: result.score for step, result in self.results.items()}

    @property
    def _steps(self) -> list[list[RungStep]]:
        """The steps of the search, rung by rung, as far as they are known."""
        return enumerated(self.count, len(self.rungs), self._scores)

    @property
    def _steps_taken(self) -> list[RungStep]:
        return sorted(step for steps in self._steps for step in steps if step in self.results)

    def write(self) -> None:
        """Write the results so far, and remove what trials have left that are not trained any more.

        A file that has the same results is left as it is.
        """
        has_ended = self.next_step is None
        files = {PROGRESS: sorted(self.results), **({TRIALS: self._steps_taken} if has_ended else {})}
        for name, steps in files.items():
            if self.stored.get(name) != steps:
                write_checked_csv(self.folder / name, self._table(steps))
                self.stored[name] = steps
        for folder in self.folder.glob("trial-*.partial-*"):
            if has_ended or int(folder.name[6:9]) not in self.going_on:
                shutil.rmtree(folder, ignore_errors=True)

    def run_folder(self, trial: Trial) -> Path:
        """Next to this folder are the files of a trial's unfinished run."""
        return self.folder / f"trial-{trial.number:03d}"

    def _table(self, steps: Sequence[RungStep]) -> pd.DataFrame:
        """One row for each step."""
        rungs = self._steps
        return pd.DataFrame([self._row(step, self._in_words(step, rungs)) for step in steps])

    def _in_words(self, step: RungStep, rungs: list[list[RungStep]]) -> str:
        """What became of a trial at a rung."""
        outcome = self.results[step].outcome
        if outcome != TRAINED:
            return outcome
        if step.rung == len(self.rungs) - 1:
            return "finished"
        if step.rung + 1 >= len(rungs):
            return TRAINED
        return "goes on" if RungStep(step.trial, step.rung + 1) in rungs[step.rung + 1] else "stopped"

    def _row(self, step: RungStep, outcome: str) -> dict[str, Any]:
        trial, result = self.trials[step.trial], self.results[step]
        return {
            **self.cell.address.columns,
            "trial": step.trial,
            "rung": step.rung + 1,
            "round": self.rungs[step.rung],
            **trial.values,
            "score": result.score,
            "outcome": outcome,
            "reason": result.reason,
            "seconds": round(result.seconds, 3),
            "identity": trial.run.identity,
            "code": result.code,
            "search": self.identity,
        }


def seed_of(experiment: Experiment) -> int:
    """The seed of tuning; a `UserError` if it is one of the experiment's."""
    given, seeds = experiment.tuning.seed, experiment.grid.seeds
    seed = seeds[0] + SEED_DISTANCE if given is None else given
    if seed in seeds:
        raise UserError(
            f"tuning.seed = {seed} is one of the seeds of experiment {experiment.name} (allowed: another one, so that "
            "the tuned values are judged on partitions and models on which they were not chosen)"
        )
    return seed
