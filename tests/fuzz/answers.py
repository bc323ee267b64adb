"""The answer to one input: accepted, or refused in one line for each mistake, in bounded time; others fail a test."""

import contextlib
import io
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fedflat.bench.input.errors import LONGEST_LINE
from fedflat.cli.app import command
from fedflat.explained import EXPLAINED, explained

T = TypeVar("T")

SECONDS = 30
"""An input without an answer after this time of the processor fails the test, whatever else the machine computes."""

WAITING = 300
"""So does one without an answer after this time of a clock, which passes also while a command only waits."""


class NoAnswerError(BaseException):
    """The time is over. It is no Exception, so that no code takes it for a failure of its own."""


class Answers:
    """Counts the answers. `refusals`: the exceptions that the command line, or the caller, shows in one line."""

    def __init__(self, *refusals: type[BaseException]) -> None:
        self._refusals = refusals or EXPLAINED
        self.count: Counter[str] = Counter()
        self.longest = 0.0

    def of(self, call: Callable[[], T]) -> T | None:
        """The result of the call; None if it is refused in one line."""
        with self._timed():
            try:
                result = call()
            except SystemExit:
                raise
            except self._refusals as error:
                _check_lines(explained(error).splitlines())
                self.count["refused"] += 1
                return None
        self.count["accepted"] += 1
        return result

    def of_command(self, words: list[str]) -> None:
        """A command may succeed, or give 2 and print one line on stderr, or one for each of its folders or cells."""
        stdout, stderr, argv = io.StringIO(), io.StringIO(), sys.argv
        with self._timed(), contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            try:
                sys.argv = ["fedflat", *words]
                code = command()
            finally:
                sys.argv = argv
        assert code in (0, 2), (words, code)
        if code == 2:
            *parts, last = _check_lines(stderr.getvalue().splitlines())
            assert not parts or re.match(f"fedflat: {len(parts)} of [0-9]+ (folders|cells) failed: ", last), parts
        self.count["accepted" if code == 0 else "refused"] += 1

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.process_time()
        before = [(number, signal.signal(number, _stop)) for number in (signal.SIGPROF, signal.SIGALRM)]
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.setitimer(signal.ITIMER_REAL, WAITING)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before:
                signal.signal(number, handler)
            self.longest = max(self.longest, time.process_time() - began)

    def __str__(self) -> str:
        answers = ", ".join(f"{count:,} {answer}" for answer, count in sorted(self.count.items()))
        return f"{self.count.total():,} inputs: {answers}; longest answer {self.longest:.1f} s of the processor"


def _stop(*_: object) -> None:
    raise NoAnswerError(f"no answer after {SECONDS} s of the processor, or {WAITING} s of a clock")


def _check_lines(lines: list[str]) -> list[str]:
    """Each error is one line, or one with the number of problems and then a line for each; returns the first lines."""
    for line in lines:
        _check_line(line)
    first = [line for line in lines if not line.startswith("  ")]
    counted = sum(int(found[1]) for line in first if (found := re.search(r": ([0-9]+) problems$", line)))
    assert len(lines) - len(first) <= counted, lines
    return first


def _check_line(line: str) -> None:
    assert line
    assert line.isprintable(), repr(line)
    assert len(line) <= 2 * LONGEST_LINE
