"""What Snakemake prints about the jobs of the workflow: one line for each job that ends, with the time left.

Snakemake itself prints three to five lines for each job that starts or ends. Its own means, `quiet` in a profile, can
only leave all of them out. So `profiles/default` does this, and a handler of Python's logging prints these lines.
"""

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
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

ERROR = "fedflat: "
"""How the line of a `UserError` begins."""

LAST_LINES = 5
"""How many lines of the log of a failed job are printed."""


@dataclass
class _Job:
    message: str
    rule: str
    logs: list[str]
    started: float


class JobLines(logging.Handler):
    """Prints a line for each job that ends, and messages of Snakemake that are not `NOISE`.

    In a dry run, a line for each job that would run. `targets`: the names of rules that only have input. `unfinished`:
    the rules of the jobs that have not finished, requested when a checkpoint has added jobs.
    """

    def __init__(self, *, dryrun: bool) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.unfinished: Callable[[], Iterable[str]] | None = None
        self._dryrun = dryrun
        self._jobs: dict[int, _Job] = {}
        self._failed: dict[int, _Job] = {}
        self._left: Counter[str] = Counter()
        self._total = 0
        self._seconds: dict[str, list[float]] = {}
        self._began = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        """Print what is to be known about an event; a record of another version of Snakemake stops no job."""
        try:
            for line in self._lines(record):
                print(line, file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)

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
        then = f", about {duration(self._time_left())} left" if left else ""
        return [f"{self._total - left} of {self._total}{then}: {job.message} ({duration(seconds)})"]

    def _failing(self, number: int, logs: list[str]) -> list[str]:
        job = self._jobs.pop(number, None)
        if job is None:
            return []
        job.logs = logs  # on a cluster, also that of the submitted job
        self._failed[number] = job
        return [f"failed: {job.message}"]

    def _time_left(self) -> float:
        """The seconds for the remaining jobs: as long as finished jobs of the same rule, as many at the same time."""
        finished = [seconds for rule in self._seconds.values() for seconds in rule]
        usual = {rule: sum(seconds) / len(seconds) for rule, seconds in self._seconds.items()}
        mean = sum(finished) / len(finished)
        elapsed = time.monotonic() - self._began
        running = sum(time.monotonic() - job.started for job in self._jobs.values())
        at_once = max(1.0, (sum(finished) + running) / max(elapsed, 1e-9))
        work = sum(left * usual.get(rule, mean) for rule, left in self._left.items())
        return max(0.0, work - running) / at_once


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


def _last_lines(logs: Iterable[str]) -> Iterable[str]:
    for log in logs:
        try:
            text = Path(log).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            text = str(error)
        yield from text.splitlines()[-LAST_LINES:]
