"""The benchmark's side of a contender's process."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
ALLOCATOR_VARIABLES = ("MALLOC_", "GLIBC_TUNABLES", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Environment variables that change the allocator; processes start without them."""


def environment(threads: int) -> dict[str, str]:
    """The environment variables of a contender's process."""
    given = {name: v for name, v in os.environ.items() if not name.startswith(ALLOCATOR_VARIABLES)}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return given | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": path}


def start(words: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """A new interpreter with pipes as its stdin and stdout."""
    command, pipe = [sys.executable, *words[1:]], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True, encoding="utf-8")


def run(words: list[str], cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `python` to its end in a new interpreter; an error if it fails."""
    command = [sys.executable, *words[1:]]
    return subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True, encoding="utf-8")


class Process:
    """A process with its own allocator and threads, in which jobs are built and called. Starts at once, in parallel.

    `keeps_memory`: freed memory stays with the process, as FedFlat's commands have it; else glibc's defaults.
    """

    def __init__(self, device: str, threads: int, *, keeps_memory: bool) -> None:
        self._process = start(["python", "-m", "tests.benchmarks.worker"], environment(threads))
        self._send({"device": device, "threads": threads, "keeps_memory": keeps_memory})
        self._unanswered = 0

    def build(self, job: str, kind: str, /, **given: Any) -> None:
        """Begin to build a job of a kind; `ask` waits for it."""
        self._send({"job": job, "kind": kind, "given": _plain(given)})
        self._unanswered += 1

    def ask(self, job: str, method: str, /, **given: Any) -> Any:
        """Call a method of a job and return its result. An error there is a `RuntimeError` here, with its traceback."""
        self._send({"job": job, "method": method, "given": _plain(given)})
        for _ in range(self._unanswered):
            self._receive()
        self._unanswered = 0
        return self._receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process without waiting for pending answers."""
        self._process.kill()
        self._process.communicate()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a contender's process ended with code {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"a contender failed:\n{answer['error']}")
        return answer["answer"]


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """JSON-able values."""
    return {name: asdict(v) if is_dataclass(v) and not isinstance(v, type) else v for name, v in given.items()}
