"""What Snakemake prints about the jobs of the workflow: one line for each job that ends, with the time left.

Snakemake itself prints three to five lines for each job that starts or ends. Its own means, `quiet` in a profile, can
only leave all of them out. So `profiles/default` does this, and a handler of Python's logging prints these lines.
"""

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snakemake.settings.enums import Quietness
from snakemake.settings.types import OutputSettings
from snakemake_interface_logger_plugins.common import LogEvent

QUIET = {Quietness.RULES, Quietness.HOST}
"""With these in Snakemake's option `--quiet`, and without `progress`, the lines are printed."""

NOISE = (
    "Assuming unrestricted shared filesystem", "Building DAG", "Using shell:", "Group jobs:", "Select jobs to execute",
    "Execute ", "Complete log(s):", "Elapsed time:", "Config file ", "Reasons:", "Exiting because a job execution",
    "WorkflowError:\nAt least one job did not complete successfully", "RuleException:\nCalledProcessError",
    "Removing output files of failed job", "DAG of jobs will be updated", "Updating checkpoint dependencies",
    "The run involves checkpoint jobs", "Some jobs were triggered by provenance information",
)  # fmt: skip
"""How the other messages begin that say nothing about the workflow, or what is said in other words at the end."""

NOTHING = "Nothing to be done"
"""How the message begins that all results are there."""

ERROR = "fedflat: "
"""How the line of a `UserError` begins."""

LAST_LINES = 5
"""How many lines of the log of a failed job are printed."""

SILENCE = 60.0
"""Seconds without a line after which a line says what the job that began first is doing."""


@dataclass
class _Job:
    message: str
    rule: str
    logs: list[str]
    started: float


class JobLines(logging.Handler):
    """Prints a line for each job that ends, and messages of Snakemake that are not `NOISE`.

    If no job ends for a while, the last line of a running job's log is printed. In a dry run, a line for each job that
    would run. `targets`: the names of rules that only have input. `unfinished`:
    the rules of the jobs that have not finished, requested when a checkpoint has added jobs. `idle` is called if there
    is nothing to do.
    """

    def __init__(self, *, dryrun: bool) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.unfinished: Callable[[], Iterable[str]] | None = None
        self.idle: Callable[[], object] | None = None
        self._dryrun = dryrun
        self._jobs: dict[int, _Job] = {}
        self._failed: dict[int, _Job] = {}
        self._left: Counter[str] = Counter()
        self._total = 0
        self._seconds: dict[str, list[float]] = {}
        self._began = self._printed = time.monotonic()
        self._watch: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Print what is to be known about an event; a record of another version of Snakemake stops no job."""
        try:
            self._print(self._lines(record))
        except Exception:
            self.handleError(record)

    def still(self) -> list[str]:
        """After a silence, what the job that began first is doing."""
        if not self._jobs or time.monotonic() - self._printed < SILENCE:
            return []
        job = min(self._jobs.values(), key=lambda one: one.started)
        last = next(iter(_last_lines([log for log in job.logs[:1] if Path(log).is_file()], 1)), "")
        done = f"{self._total - self._left.total()} of {self._total}, {len(self._jobs)} running"
        return [f"{done}: {job.message}, for {duration(time.monotonic() - job.started)}{f': {last}' if last else ''}"]

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            print(line, file=sys.stderr, flush=True)
            self._printed = time.monotonic()

    def _watching(self) -> None:
        while True:
            time.sleep(SILENCE / 10)
            with self.lock or nullcontext():
                self._print(self.still())

    def failures(self) -> list[str]:
        """The failed jobs, each in one line if its log ends with that of a `UserError`; else with its last lines."""
        jobs = self._failed.values()
        lines = [f"{len(jobs)} of {self._total} jobs failed:"] if jobs else []
        for job in jobs:
            logs, last = ", ".join(job.logs), list(_last_lines(job.logs))
            if [line.startswith(ERROR) for line in last] == [False] * (len(last) - 1) + [True]:
                lines.append(f"{job.message}: {last[-1].removeprefix(ERROR)} ({logs})")
            else:
                lines += [f"{job.message}: {logs}", *(f"    {line}" for line in last)]
        return lines

    def _lines(self, record: logging.LogRecord) -> Iterable[str]:
        event, about = getattr(record, "event", None), record.__dict__
        if event == LogEvent.RUN_INFO:
            return self._planned(about["stats"])
        if event == LogEvent.JOB_INFO:
            return self._started(about)
        if event == LogEvent.JOB_FINISHED:
            return self._finished(about["job_id"])
        if event == LogEvent.JOB_ERROR:
            return self._failing(about["jobid"], list(about["log"]))
        message = record.getMessage() if event in (None, LogEvent.ERROR) and record.msg else ""
        if message.startswith(NOTHING) and self.idle is not None:
            self.idle()
        return [message] if message and not message.startswith(NOISE) else []

    def _planned(self, stats: dict[str, int]) -> list[str]:
        """The number of jobs by rule."""
        if self._total:  # a dry run says it twice
            return []
        self._left.update({rule: n for rule, n in stats.items() if rule not in (*self.targets, "total")})
        self._total = self._left.total()
        self._began = time.monotonic()
        if self._dryrun:
            return [f"{rule:8} {n}" for rule, n in self._left.items()]
        return [f"{self._total} jobs: {', '.join(f'{n} {rule}' for rule, n in self._left.items())}"]

    def _started(self, about: dict[str, Any]) -> list[str]:
        rule: str = about["rule_name"]
        if rule in self.targets:
            return []
        job = _Job(about["rule_msg"] or rule, rule, about["log"], time.monotonic())
        self._jobs[about["jobid"]] = job
        if self._watch is None and not self._dryrun:  # not before the command server is forked
            self._watch = threading.Thread(target=self._watching, daemon=True)
            self._watch.start()
        if self.unfinished is not None and self._left[rule] < sum(one.rule == rule for one in self._jobs.values()):
            done = self._total - self._left.total()
            self._left = Counter(name for name in self.unfinished() if name not in self.targets)
            self._total = done + self._left.total()
        return [job.message] if self._dryrun else []

    def _finished(self, number: int) -> list[str]:
        job = self._jobs.pop(number, None)
        if job is None:
            return []
        self._failed.pop(number, None)  # it was tried again
        seconds = time.monotonic() - job.started
        self._seconds.setdefault(job.rule, []).append(seconds)
        self._left[job.rule] -= 1
        left = self._left.total()
        then = f", {about}" if left and (about := self._time_left()) else ""
        return [f"{self._total - left} of {self._total}{then}: {job.message} ({duration(seconds)})"]

    def _failing(self, number: int, logs: list[str]) -> list[str]:
        job = self._jobs.pop(number, None)
        if job is None:
            return []
        job.logs = logs  # on a cluster, also that of the submitted job
        self._failed[number] = job
        return [f"failed: {job.message}"]

    def _time_left(self) -> str:
        """The time for the remaining jobs: as long as finished jobs of the same rule, as many at the same time.

        'At least' that of the rules of which a job has finished, if there are others; empty if there are only others.
        """
        now = time.monotonic()
        finished = sum(seconds for rule in self._seconds.values() for seconds in rule)
        usual = {rule: sum(seconds) / len(seconds) for rule, seconds in self._seconds.items()}
        running = {number: now - job.started for number, job in self._jobs.items()}
        at_once = max(1.0, (finished + sum(running.values())) / max(now - self._began, 1e-9))
        work = sum(left * usual.get(rule, 0.0) for rule, left in self._left.items())
        spent = sum(seconds for number, seconds in running.items() if self._jobs[number].rule in usual)
        if all(rule in usual for rule, left in self._left.items() if left):
            return f"about {duration(max(0.0, work - spent) / at_once)} left"
        return f"at least {duration(max(0.0, work - spent) / at_once)} left" if work else ""


def print_job_lines(settings: OutputSettings) -> JobLines | None:
    """Replace what Snakemake prints on the screen by `JobLines`, if it is as quiet as `QUIET` says; else None."""
    quiet = set(settings.quiet or ())
    if not quiet >= QUIET or Quietness.PROGRESS in quiet:
        return None
    logger = logging.getLogger("snakemake.logging")
    for handler in [one for one in logger.handlers if one.name == "DefaultStreamHandler"]:
        logger.removeHandler(handler)
    lines = JobLines(dryrun=settings.dryrun)
    logger.addHandler(lines)
    return lines


def duration(seconds: float) -> str:
    """A time such as 4 s, 12 min or 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def _last_lines(logs: Iterable[str], count: int = LAST_LINES) -> Iterable[str]:
    for log in logs:
        try:
            text = Path(log).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            text = str(error)
        yield from text.splitlines()[-count:]
