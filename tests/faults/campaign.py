"""Trials: a run is killed with SIGKILL at random times and resumed, and its final bits are compared."""

import json
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

import pandas as pd

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.training.answers import FOLDER
from fedflat.bench.training.engine_choice import EngineChoice
from tests.bench.training.small_runs import SETTING, contents
from tests.bench.training.test_choices import home
from tests.commands import start
from tests.faults.subjects import Changes, Subject, Way

SMALL: Changes = {
    "training.rounds": 12,
    "training.local_epochs": 1,
    "evaluation.every": 4,
    "evaluation.snapshot_every": 4,
    "evaluation.local_models": [3, 12],
}
SHARE = 0.6
"""A process is killed within this share of an undisturbed run's time, so that a run is killed several times."""
RUNS = "store/*/*/*/*/seed-*"
"""The runs in a folder of results."""

CHECKPOINT_SECONDS = (0, 0, 0.05, 60)
"""After each round; rarely; never."""


@dataclass(frozen=True)
class Outcome:
    """A trial: the kills, how often a run of a seed was resumed from a checkpoint, and what differs in the end."""

    subject: str
    way: str
    kills: int
    resumed: int
    differs: tuple[str, ...]


@dataclass
class Trial:
    """One subject in one way: undisturbed, and killed at most `most_kills` times; both runs are in `folder`."""

    subject: Subject
    way: Way
    folder: Path
    random: Random
    most_kills: int
    _homes: int = field(default=0, init=False)

    def __call__(self) -> Outcome:
        """Kill, resume and compare."""
        changes = {
            **SMALL,
            "grid.seeds": list(self.way.seeds),
            **self.subject.changes,
            **self.way.changes,
            "engine.checkpoint_seconds": self.random.choice(CHECKPOINT_SECONDS),
            "engine.client_memory": self.random.choice((None, 0)),
        }
        killed, undisturbed = self.folder / "killed", self.folder / "undisturbed"
        measured = list(self.way.measured)
        self.random.shuffle(measured)
        if not measured:
            seconds = self._finish(undisturbed, changes, None)
        else:  # the same work with the first choice, to know how long a run takes
            seconds = self._finish(self.folder / "timed", changes, measured[0])
        kills = self._kill(killed, changes, measured, seconds)
        self._finish(killed, changes, measured[kills % len(measured)] if measured else None)
        if measured:
            self._finish(undisturbed, changes, _choice_at_start(killed))
        logs = [(run / "run.log").read_text(encoding="utf-8") for run in killed.glob(RUNS)]
        resumed = sum(log.count("resumed after round") for log in logs)
        return Outcome(self.subject.name, self.way.name, kills, resumed, tuple(_differences(undisturbed, killed)))

    def _kill(self, out: Path, changes: Changes, measured: list[EngineChoice], seconds: float) -> int:
        """Kill the run several times; the number of kills, fewer if it ends before."""
        for kills in range(self.random.randint(1, self.most_kills)):
            process = self._started(out, changes, measured[kills % len(measured)] if measured else None)
            _wait_for_work(process, out)
            process.join(self.random.uniform(0, SHARE * seconds))
            if not process.is_alive():
                _check(process)
                return kills
            process.kill()
            process.join()
        return kills + 1

    def _finish(self, out: Path, changes: Changes, measured: EngineChoice | None) -> float:
        """Run the command to its end; the seconds after the first run was set up."""
        process = self._started(out, changes, measured)
        _wait_for_work(process, out)
        began = time.monotonic()
        process.join()
        _check(process)
        return time.monotonic() - began

    def _started(self, out: Path, changes: Changes, measured: EngineChoice | None) -> BaseProcess:
        """A process that trains into `out`, in a home folder of its own, where this choice was measured."""
        self._homes += 1
        folder = self.folder / f"home-{self._homes}"
        words = ["fedflat", "run", "quick_catalog", f"{SETTING}/{self.subject.method}", "--device", "cpu"]
        words += ["--threads", str(self.way.threads), "--results", str(out)]
        words += [f"--set={key}={json.dumps(value)}" for key, value in changes.items()]
        with home(folder, measured, _first_run(self.subject, changes)) as environment:
            return start(words, self.folder, environment, [self.folder / "output"] * 2)


def campaign(
    cases: Iterable[tuple[Subject, Way]], kills: int, folder: Path, random: Random, most_kills: int = 6
) -> Iterator[Outcome]:
    """Trials until the number of kills is reached. The files of a trial with different bits are kept."""
    done = 0
    for number, (subject, way) in enumerate(cases):
        if done >= kills:
            return
        place = folder / f"trial-{number}"
        place.mkdir(parents=True)
        outcome = Trial(subject, way, place, random, most_kills)()
        done += outcome.kills
        if not outcome.differs:
            shutil.rmtree(place)
        yield outcome


def table(outcomes: Iterable[Outcome]) -> str:
    """Trials, kills, resumed runs and equal ends of each way, as Markdown."""
    rows = pd.DataFrame(
        [(one.way, one.subject, one.kills, one.resumed, not one.differs) for one in outcomes],
        columns=["way", "subject", "kills", "resumed", "same"],
    )
    lines = [
        "| engine | methods and variants | trials | kills | resumed runs | same bits |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for way, own in [*rows.groupby("way", sort=False), ("all", rows)]:
        counts = [own["subject"].nunique(), len(own), own["kills"].sum(), own["resumed"].sum(), own["same"].sum()]
        lines.append(f"| {way} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def _first_run(subject: Subject, changes: Changes) -> RunConfig:
    return load_experiment("quick_catalog", changes).cell(f"{SETTING}/{subject.method}").runs[0]


def _wait_for_work(process: BaseProcess, out: Path) -> None:
    """Wait until the process has set up its first run, or has ended."""
    while process.is_alive() and not any(out.glob(f"{RUNS}/")):
        time.sleep(0.002)


def _check(process: BaseProcess) -> None:
    if process.exitcode != 0:
        raise RuntimeError(f"the command ended with exit code {process.exitcode}")


def _choice_at_start(out: Path) -> EngineChoice:
    """The choice with which the first seed's run began."""
    about = json.loads((min(out.glob(RUNS)) / "provenance.json").read_text(encoding="utf-8"))
    return EngineChoice.from_json(about["engine_at_start"])


def _differences(expected: Path, found: Path) -> Iterator[str]:
    """What differs between two folders of results: files, their bytes."""
    files = {place: {str(file.relative_to(place)) for file in place.rglob("*")} for place in (expected, found)}
    hidden = f"store/{FOLDER}"
    yield from (f"only one has {name}" for name in sorted(files[expected] ^ files[found]) if hidden not in name)
    for run in sorted(expected.glob(RUNS)):
        one, other = contents(run), contents(found / run.relative_to(expected))
        yield from (f"{run.name}/{name}" for name in sorted(one) if one[name] != other.get(name))
