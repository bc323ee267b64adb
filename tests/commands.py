"""Runs commands of the project. Each has its own process, a fork of one that has imported torch and Snakemake.

The imports take longer than most commands. What depends on the start of a process is tested with new processes.
"""

import multiprocessing
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from fedflat.command_server import IMPORTED
from tests.places import ROOT

PRELOADED = [*IMPORTED, "snakemake.cli", "fedflat.analysis.planning.workflow"]
SNAKEMAKE = ["--snakefile", str(ROOT / "Snakefile"), "--workflow-profile", str(ROOT / "profiles" / "default")]


def run(words: list[str], cwd: Path | None = None, env: Mapping[str, str] = os.environ) -> subprocess.CompletedProcess:
    """Run `fedflat`, `snakemake` with the project's Snakefile, or `python`, and capture what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        printed = [Path(folder) / name for name in ("stdout", "stderr")]
        process = start(words, cwd or Path.cwd(), env, printed)
        process.join(600)
        if process.is_alive():
            process.kill()
            process.join()
            raise TimeoutError(f"{words} runs for more than ten minutes")
        return subprocess.CompletedProcess(words, process.exitcode, *(file.read_text("utf-8") for file in printed))


def start(words: list[str], cwd: Path, env: Mapping[str, str], printed: list[Path]) -> BaseProcess:
    """Start a command whose stdout and stderr are appended to the two files `printed`."""
    process = _forks().Process(target=_printing, args=(words, cwd, dict(env), printed))
    process.start()
    return process


class Piped:
    """A started command with pipes as its stdin and stdout, as `subprocess.Popen` has it."""

    def __init__(self, words: list[str], env: Mapping[str, str] = os.environ) -> None:
        (given, to), (since, printed) = (_forks().Pipe(duplex=False) for _ in range(2))
        self._process = _forks().Process(target=_piped, args=(words, Path.cwd(), dict(env), given, printed))
        self._process.start()
        given.close()
        printed.close()
        self.stdin = os.fdopen(os.dup(to.fileno()), "w", encoding="utf-8")
        self.stdout = os.fdopen(os.dup(since.fileno()), encoding="utf-8")
        to.close()
        since.close()

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def communicate(self) -> None:
        """Close the pipes, and wait until the process has ended."""
        self.stdout.close()
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.wait()


def fedflat(*arguments: object, **options) -> subprocess.CompletedProcess:
    return run(["fedflat", *map(str, arguments)], **options)


def refused(*arguments: object, **options) -> str:
    """Run a `fedflat` command that must fail because of invalid input, and return its one line."""
    done = fedflat(*arguments, **options)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("fedflat: ")
    return line


@contextmanager
def ended(capsys: pytest.CaptureFixture[str], line: str) -> Iterator[None]:
    """Snakemake is ended in this block because of invalid input, with one line that this pattern matches."""
    with pytest.raises(SystemExit) as end:
        yield
    [printed] = capsys.readouterr().err.splitlines()
    assert end.value.code == 2
    assert re.search(line, printed), printed


def _forks() -> BaseContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _printing(words: list[str], folder: Path, env: dict[str, str], printed: list[Path]) -> None:
    for descriptor, file in enumerate(printed, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    _command(words, folder, env)


def _piped(words: list[str], folder: Path, env: dict[str, str], given: Connection, printed: Connection) -> None:
    os.dup2(given.fileno(), 0)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    os.dup2(printed.fileno(), 1)
    given.close()
    printed.close()
    _command(words, folder, env)


def _command(words: list[str], folder: Path, env: dict[str, str]) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env, PYTHONPATH=str(ROOT))
    program, *arguments = sys.argv = words
    if program == "fedflat":
        from fedflat.__main__ import main

        main()
    elif program == "snakemake":
        from snakemake.cli import main as snakemake

        snakemake([*SNAKEMAKE, *arguments])
    elif words[:2] == ["python", "-m"]:
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif program == "python":
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        sys.exit(f"the tests cannot run {program}")
