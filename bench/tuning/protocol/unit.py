"""A unit of the search: the trials of one method in one setting with one tuning seed, and the files that store them."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedflat.bench.code.user_code import FailingCodeError
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.results import TRIALS
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.files.csv_json import read_checked_csv, write_checked_csv
from fedflat.bench.host.progress import Progress
from fedflat.bench.input.content import short_hash
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.code_version import code_fingerprint
from fedflat.bench.training.unfinished import Trained, train_to
from fedflat.bench.tuning.cell_search import DIVERGED, FAILED, PROGRESS, TRAINED
from fedflat.bench.tuning.protocol.plan import OfBase, Plan
from fedflat.bench.tuning.protocol.trial import Measured, as_trial, measured
from fedflat.bench.tuning.protocol.trial_results import Planned, TrialResult, best, confirmed
from fedflat.bench.tuning.trials import with_values

FINISHED_WITH = "taken"
"""The outcome of a trial of the base that a method takes."""

_WHOLE = ("number", "rounds", "tuning_seed")
_NUMBERS = ("again", "fitted", "fit_round", "cpu_seconds", "gradients")
_EXACT = ("train_accuracy", "validation_accuracy", "fit_mb", "distance")
_TEXTS = ("stage", "from", "values", "ends", *_EXACT, "outcome", "reason", "identity", "code", "protocol", "search")
COLUMNS = (
    "tuning_seed", "number", "stage", "from", "again", "values", "ends", "train_accuracy", "validation_accuracy",
    "fitted", "fit_round", "fit_mb", "distance", "gradients", "outcome", "reason", "cpu_seconds", "rounds", "identity",
    "code", "protocol", "search",
)  # fmt: skip
"""The columns of trials.csv after those of the cell. Numbers that decide are texts with all digits; `values` and `ends`
are JSON by place; `from` is the trial of the base that the trial is, `again` the number of the one whose values are
trained with the second seed."""

REMEDY = "delete it, and search again"


@dataclass
class Unit:
    """The search of one method in one setting with one tuning seed.

    `name`: such as main/fedsam/1000; `base`: the run of its first trial; `report`: the value that the experiment
    reports; `of_base`: the unit whose shared trials a method takes; None for a base. `further`: what else makes two
    searches different.
    """

    name: str
    folder: Path
    address: CellAddress
    base: RunConfig
    report: str
    plan: Plan
    of_base: "Unit | None" = None
    further: Any = None
    rows: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def identity(self) -> str:
        """Hash of what two searches have in common whose trials can be used together."""
        ranges = {place: one.model_dump(mode="json") for place, one in self.plan.ranges.items()}
        above = None if self.of_base is None else self.of_base.identity
        parts = [self.plan.protocol.identity, self.base.identity, self.report, ranges, self.plan.label, self.further]
        return short_hash(json.dumps([*parts, above], sort_keys=True, default=str))

    @property
    def file(self) -> Path:
        """The file of all trials; it is written when the search has ended."""
        return self.folder / TRIALS

    @property
    def has_ended(self) -> bool:
        """Whether the file of all trials exists."""
        return self.file.is_file()

    def read(self) -> list[TrialResult]:
        """The stored results in their order; a `UserError` if they are those of another search, or damaged."""
        file = self.file if self.has_ended else self.folder / PROGRESS
        self.rows = []
        if not file.is_file():
            return []
        texts = (*self.address.columns, *_TEXTS)
        table = read_checked_csv(file, COLUMNS, REMEDY, texts=texts, whole=_WHOLE, keys=("number",))
        if (table["search"] != self.identity).any():
            raise UserError(
                f"'{file}' holds trials of another search (another protocol, seed or experiment, or an edited file): "
                "choose another folder with --results, or delete it"
            )
        columns = list(map(str, table.columns))
        values = table.astype(object).where(table.notna(), None).itertuples(index=False)
        self.rows = [dict(zip(columns, row, strict=True)) for row in values]
        return [result_of(row) for row in self.rows]

    @property
    def shared(self) -> list[TrialResult]:
        """The results of a base that its methods take; empty as long as they are not complete."""
        if not isinstance(self.plan, OfBase):
            return []
        found = [result for result in self.read() if result.planned.stage in self.plan.shared]
        return found if len(found) == self.plan.protocol.trials.shared else []

    @property
    def is_ready(self) -> bool:
        """Whether the trials of the base are there that the method takes."""
        return self.of_base is None or bool(self.of_base.shared)

    @property
    def winner(self) -> TrialResult:
        """The best confirmed result of a search that has ended; the best one where none is confirmed."""
        return winner_of(self.read())

    def advance(self, device: torch.device, progress: Progress) -> bool:
        """Train the next batch of trials, and store it; False if there is none, so that the search has ended.

        A batch that was killed goes on. A `UserError` if another process works on it: see `folder_lock`.
        """
        results = self.read()
        batch = self.plan.next_batch(results, () if self.of_base is None else self.of_base.shared)
        if batch is None:
            if not self.has_ended:
                self._write(TRIALS)
            self._remove_unfinished()
            return False
        first = len(results)
        if batch[0].taken is not None:
            self.rows += [self._taken(first + k, planned) for k, planned in enumerate(batch)]
        else:
            self.rows += self._trained(first, batch, device)
        self._write(PROGRESS)
        self._remove_unfinished()
        winner = winner_of(self.read())
        progress(f"{self.name}: {batch[0].stage}: {len(batch)} trials; the best of {len(self.rows)} is {words(winner)}")
        return True

    def _taken(self, number: int, planned: Planned) -> dict[str, Any]:
        """The row of a trial of the base, with this method's values."""
        assert self.of_base is not None
        row = next(row for row in self.of_base.rows if row["number"] == planned.taken)
        own = self._of_planned(number, planned)
        return {
            **row,
            **own,
            "from": f"{self.of_base.name}/{planned.taken}",
            "outcome": FINISHED_WITH,
            "cpu_seconds": 0.0,
        }

    def _trained(self, first: int, batch: Sequence[Planned], device: torch.device) -> list[dict[str, Any]]:
        runs = [self.run(planned) for planned in batch]
        folders = [self.folder / f"trial-{first + k:03d}" for k in range(len(batch))]
        rows = []
        for k, (planned, run, trained) in enumerate(zip(batch, runs, train_batch(runs, folders, device), strict=True)):
            found: dict[str, Any] = dict.fromkeys(Measured.__dataclass_fields__)
            outcome, reason, seconds, rounds = FAILED, str(trained), 0.0, 0
            if isinstance(trained, Trained):
                last = trained.rows[-1]
                outcome, reason, seconds, rounds = TRAINED, "", trained.cpu_seconds, last["round"]
                if last["diverged"]:
                    outcome, reason = DIVERGED, f"diverged in round {last['round']}"
                else:
                    least = self.plan.protocol.fitted.least
                    found = asdict(measured(run, self.report, least, trained.rows))
            own = self._of_planned(first + k, planned)
            about = {"outcome": outcome, "reason": reason, "cpu_seconds": round(seconds, 3), "rounds": rounds}
            row = {**own, **found, **about, "identity": run.identity, "code": code_fingerprint()}
            rows.append({**row, "fitted": int(bool(found["fitted"]))})
        return rows

    def run(self, planned: Planned) -> RunConfig:
        """The run of a trial."""
        seed = self.plan.seed if planned.again is None else self.plan.protocol.second_seed(self.plan.seed)
        return as_trial(with_values(self.base, planned.values), seed)

    def _of_planned(self, number: int, planned: Planned) -> dict[str, Any]:
        return {
            **self.address.columns,
            "tuning_seed": self.plan.seed,
            "number": number,
            "stage": planned.stage,
            "from": "",
            "again": planned.again,
            "values": json.dumps(planned.values),
            "ends": json.dumps(planned.ends),
            "protocol": self.plan.protocol.identity,
            "search": self.identity,
        }

    def _write(self, name: str) -> None:
        rows = [{**row, **{name: _exact(row[name]) for name in _EXACT}} for row in self.rows]
        table = pd.DataFrame(rows)[[*self.address.columns, *COLUMNS]]
        write_checked_csv(self.folder / name, table)

    def _remove_unfinished(self) -> None:
        for folder in self.folder.glob("trial-*.partial-*"):
            shutil.rmtree(folder, ignore_errors=True)


def _exact(value: Any) -> str | None:
    """A number with all digits; texts of numbers stay."""
    return None if value is None else repr(float(value))


def winner_of(results: Sequence[TrialResult]) -> TrialResult:
    """The best of the confirmed results; of all as long as none is confirmed."""
    return (confirmed(results, 1) or best(results, 1))[0]


def words(result: TrialResult) -> str:
    """A result in words."""
    if result.train_accuracy is None:
        return f"trial {result.number}, which failed"
    fitted = "" if result.fitted else ", not fitted"
    runs = ", mean of two seeds" if result.confirmed else ""
    scores = f"train {result.train_accuracy:.1f} %, validation {result.validation_accuracy:.1f} %{runs}"
    return f"trial {result.number} ({scores}{fitted})"


def train_batch(
    runs: Sequence[RunConfig], folders: Sequence[Path], device: torch.device
) -> list[Trained | FailingCodeError]:
    """Train trials to their end, in one cohort as far as they can share one.

    The error of user-defined code counts as a result: to find the trial to which it belongs, each is trained alone.
    """
    try:
        return list(train_to(runs, folders, runs[0].training.rounds, device))
    except FailingCodeError as error:
        if len(runs) == 1:
            return [error]
    return [result for one in zip(runs, folders, strict=True) for result in train_batch([one[0]], [one[1]], device)]


def result_of(row: Mapping[Any, Any]) -> TrialResult:
    """A stored row as the plan sees it."""
    ends = {place: (low, high) for place, (low, high) in json.loads(row["ends"]).items()}
    taken, again = row["from"], row["again"]
    planned = Planned(
        row["stage"],
        json.loads(row["values"]),
        ends,
        None if taken is None else int(taken.rpartition("/")[2]),
        None if again is None else int(again),
    )
    train, validation, distance = (
        None if row[name] is None else float(row[name])
        for name in ("train_accuracy", "validation_accuracy", "distance")
    )
    return TrialResult(row["number"], planned, train, validation, bool(row["fitted"]), distance)
