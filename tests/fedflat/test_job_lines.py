"""The lines that replace Snakemake's: jobs, the time left, and failures; driven by records as Snakemake logs them."""

import logging
import threading
import time
from pathlib import Path

import pytest
from snakemake.settings.enums import Quietness
from snakemake.settings.types import OutputSettings
from snakemake_interface_logger_plugins.common import LogEvent

from fedflat import job_lines
from fedflat.job_lines import JobLines, duration, print_job_lines


class Workflow:
    """Emits the records of a workflow at times that the test sets."""

    def __init__(self, patch: pytest.MonkeyPatch, *, dryrun: bool = False) -> None:
        self.now = 0.0
        patch.setattr(job_lines.time, "monotonic", lambda: self.now)
        self.lines = JobLines(dryrun=dryrun)
        self.lines._watch = threading.current_thread()  # its clock would be this one
        self.lines.targets = {"quick_runs"}

    def emit(self, event: LogEvent | None, text: str | None = None, **about: object) -> None:
        record = logging.LogRecord("snakemake.logging", logging.INFO, "", 0, text, None, None)
        record.__dict__.update(about, event=event)
        self.lines.handle(record)

    def plan(self, **stats: int) -> None:
        self.emit(LogEvent.RUN_INFO, "Job stats", stats={**stats, "total": sum(stats.values())})

    def start(self, number: int, rule: str = "train", message: str | None = "train a cell") -> None:
        self.emit(LogEvent.JOB_INFO, jobid=number, rule_name=rule, rule_msg=message, log=["train.log"])

    def finish(self, number: int, now: float) -> None:
        self.now = now
        self.emit(LogEvent.JOB_FINISHED, job_id=number)

    def fail(self, number: int, log: Path) -> None:
        self.emit(LogEvent.JOB_ERROR, "Error in rule train", jobid=number, log=[str(log)])


@pytest.fixture
def workflow(monkeypatch) -> Workflow:
    return Workflow(monkeypatch)


def test_the_time_left_is_that_of_jobs_of_the_same_rule(workflow, capsys):
    workflow.plan(train=4, figure=2, quick_runs=1)
    for number in (1, 2):
        workflow.start(number)
    workflow.finish(1, now=10)
    workflow.start(3)
    workflow.finish(2, now=20)  # 30 s of work in 20 s: 1.5 jobs at once
    workflow.start(4, "figure", "figure drift of quick")
    workflow.start(9, "quick_runs", None)
    workflow.finish(4, now=22)
    workflow.finish(9, now=22)
    assert capsys.readouterr().err.splitlines() == [
        "6 jobs: 4 train, 2 figure",
        # 3 jobs of 10 s, of which 10 s are done, 2 at a time; no figure has been drawn
        "1 of 6, at least 10 s left: train a cell (10 s)",
        # 2 jobs of 15 s, of which 10 s are done, 2 at a time
        "2 of 6, at least 10 s left: train a cell (20 s)",
        # two of 15 s and a figure of 2 s, less 12 s of the running one; 44 s of work in 22 s
        "3 of 6, about 10 s left: figure drift of quick (2 s)",
    ]


def test_a_long_job_says_what_it_does(workflow, capsys, tmp_path, monkeypatch):
    log = tmp_path / "train.log"
    log.write_text("seed 0: round 1 of 9\nseed 0: round 2 of 9\n", encoding="utf-8")
    workflow.plan(train=3)
    workflow.start(1)
    workflow.lines._jobs[1].logs = [str(log)]
    workflow.now = 30
    workflow.start(2)
    assert workflow.lines.still() == []
    workflow.now = 61
    expected = ["0 of 3, 2 running: train a cell, for 61 s: seed 0: round 2 of 9"]
    assert workflow.lines.still() == expected
    workflow.finish(2, now=62)
    workflow.now = 100
    assert workflow.lines.still() == [], "a line was printed 38 s ago"
    log.unlink()
    workflow.now = 123
    assert workflow.lines.still() == ["1 of 3, 1 running: train a cell, for 2 min"]


def test_the_watch_prints_by_itself(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(job_lines, "SILENCE", 0.05)
    lines = JobLines(dryrun=False)
    about = {"jobid": 1, "rule_name": "train", "rule_msg": "train a cell", "log": [str(tmp_path / "none.log")]}
    record = logging.LogRecord("snakemake.logging", logging.INFO, "", 0, None, None, None)
    record.__dict__.update(about, event=LogEvent.JOB_INFO)
    lines.handle(record)
    deadline = time.monotonic() + 20
    while "train a cell, for 0 s" not in capsys.readouterr().err:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    lines._jobs.clear()


def test_failures_are_shown_once_at_the_end(workflow, capsys, tmp_path):
    log = tmp_path / "train.log"
    log.write_text("".join(f"line {number}\n" for number in range(20)), encoding="utf-8")
    workflow.plan(train=2)
    for number in (1, 2):
        workflow.start(number)
    workflow.fail(1, log)
    workflow.start(1)  # tried again
    workflow.fail(1, log)
    workflow.fail(2, tmp_path / "none.log")
    workflow.start(2)
    workflow.finish(2, now=3)
    said = capsys.readouterr().err.splitlines()
    assert said[1:4] == ["failed: train a cell"] * 3
    assert workflow.lines.failures() == [
        "1 of 2 jobs failed:",
        f"train a cell: {log}",
        *(f"    line {number}" for number in range(15, 20)),
    ]


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (
            "fedflat run a cell\nfedflat: lr = −1 (allowed: above 0)\n",
            ["train a cell: lr = −1 (allowed: above 0) (LOG)"],
        ),
        (
            "fedflat: cell a: a mistake\nfedflat: 1 of 2 cells failed: a\n",
            ["train a cell: LOG", "    fedflat: cell a: a mistake", "    fedflat: 1 of 2 cells failed: a"],
        ),
        ("fedflat: a mistake\nKilled\n", ["train a cell: LOG", "    fedflat: a mistake", "    Killed"]),
    ],
)
def test_a_single_mistake_is_one_line(workflow, tmp_path, log, shown):
    file = tmp_path / "train.log"
    file.write_text(log, encoding="utf-8")
    workflow.plan(train=1)
    workflow.start(1)
    workflow.fail(1, file)
    assert workflow.lines.failures()[1:] == [line.replace("LOG", str(file)) for line in shown]


def test_other_messages_are_kept_unless_they_are_known_to_say_nothing(workflow, capsys):
    workflow.emit(None, "Select jobs to execute...")
    workflow.emit(LogEvent.ERROR, "RuleException:\nCalledProcessError in file Snakefile", exception="RuleException")
    workflow.emit(LogEvent.ERROR, "LockException:\nError: Directory cannot be locked.", exception="LockException")
    workflow.emit(None, "Nothing to be done (all requested files are present and up to date).")
    workflow.emit(LogEvent.SHELLCMD, "Shell command: None")
    workflow.emit(None, None)
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "LockException",
        "Error",
        "Nothing to be done (all requested files are present and up to date).",
    ]
    assert workflow.lines.failures() == []


def test_a_record_with_other_fields_stops_nothing(workflow, capsys):
    workflow.emit(LogEvent.JOB_FINISHED)
    assert "KeyError: 'job_id'" in capsys.readouterr().err


def test_a_dry_run_names_its_jobs(monkeypatch, capsys):
    workflow = Workflow(monkeypatch, dryrun=True)
    for _ in range(2):  # Snakemake says it before the jobs and after them
        workflow.plan(train=1, quick_runs=1)
    workflow.start(1)
    assert [line.split() for line in capsys.readouterr().err.splitlines()] == [["train", "1"], ["train", "a", "cell"]]


@pytest.mark.parametrize(
    ("quiet", "printed"),
    [
        ({Quietness.RULES, Quietness.HOST, Quietness.REASON}, True),
        ({Quietness.REASON}, False),
        ({Quietness.RULES, Quietness.PROGRESS}, False),
        ({Quietness.ALL}, False),
        (None, False),
    ],
)
def test_the_lines_replace_those_of_snakemake_if_it_is_quiet(quiet, printed):
    logger, theirs = logging.getLogger("snakemake.logging"), logging.StreamHandler()
    theirs.name = "DefaultStreamHandler"
    before = logger.handlers[:]
    logger.handlers[:] = [theirs]
    try:
        lines = print_job_lines(OutputSettings(quiet=quiet))
        assert logger.handlers == ([lines] if printed else [theirs])
    finally:
        logger.handlers[:] = before


@pytest.mark.parametrize(("seconds", "text"), [(3.6, "4 s"), (99, "99 s"), (130, "2 min"), (7200, "2.0 h")])
def test_times_are_short(seconds, text):
    assert duration(seconds) == text


def test_jobs_that_a_checkpoint_adds_are_counted(workflow, capsys):
    workflow.plan(tune=1, compared=1, quick_runs=1)
    workflow.lines.unfinished = lambda: ["train", "train", "compared", "quick_runs"]
    workflow.start(1, "tune", "tune a cell")
    workflow.finish(1, now=10)
    workflow.start(2)
    workflow.finish(2, now=20)
    workflow.start(3)
    workflow.finish(3, now=30)
    assert capsys.readouterr().err.splitlines() == [
        "2 jobs: 1 tune, 1 compared",
        "1 of 2: tune a cell (10 s)",
        "2 of 4, at least 10 s left: train a cell (10 s)",
        "3 of 4: train a cell (10 s)",
    ]
