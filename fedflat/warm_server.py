"""The inside of the warm process (see `fedflat.warm`): one loop over a few descriptors, and a fork for each command.

It has a single thread, computes nothing and touches no GPU: so its forks are as good as new processes.
"""

import ctypes
import functools
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from fedflat.cli.app import command
from fedflat.warm import ACCEPTED, HANDED_OVER

FIRST = ("bench.training.train",)
"""Imported before the first command is taken on: all that training needs."""

LATER = ("analysis.analyses.run_analysis", "torch.fx.experimental.symbolic_shapes", "analysis.report.report")
"""Imported while no command comes in. The second is what `torch.autograd.grad` imports for Hessian-vector products."""

ROOT = Path(__file__).parents[1]
TASKS = Path("/proc/self/task")
"""One entry for each thread."""
PR_SET_PDEATHSIG = 1

STDIN = 0
"""Nobody writes to it, and it ends when the process that started this one does."""


def sources() -> dict[Path, tuple[int, int]]:
    """Time stamp and size of every source file of the project."""
    files = (file for package in ("bench", "analysis", "fedflat") for file in (ROOT / package).rglob("*.py"))
    return {file: ((stat := file.stat()).st_mtime_ns, stat.st_size) for file in files}


class Server:
    """Runs the commands that come through the socket until stdin ends, and kills those that still run then."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.pid = os.getpid()
        self.running: set[int] = set()
        """The processes of commands; each leads a process group."""
        self.events = selectors.DefaultSelector()
        """What is waited for, each with what is done then."""
        self.prctl = ctypes.CDLL(None).prctl
        self.sources = sources()
        for module in FIRST:
            importlib.import_module(module)
        self.later = list(LATER)
        # That of the imported code, which forks inherit for their provenance.
        importlib.import_module("bench.training.code_version").code_fingerprint()

    def serve(self) -> None:
        """Until stdin ends."""
        self._when(self.listener, self._connect)
        self.events.register(STDIN, selectors.EVENT_READ)
        try:
            while True:
                events = self.events.select(0 if self.later else None)
                if not events:
                    self._import_next()
                elif (event := events[0][0]).fileobj == STDIN:
                    break
                else:  # the others come again: what this one leads to may close their descriptors
                    event.data()
        finally:
            for pid in self.running:
                os.killpg(pid, signal.SIGKILL)
            for pid in self.running:
                os.waitpid(pid, 0)

    def _import_next(self) -> None:
        try:
            importlib.import_module(self.later.pop(0))
        except Exception:  # as in the midst of an edit; the commands themselves tell what is wrong
            self.later.clear()
            self._stop_accepting()

    def _when(self, readable: socket.socket | int, action: Callable[..., None], *arguments: object) -> None:
        self.events.register(readable, selectors.EVENT_READ, functools.partial(action, *arguments))

    def _connect(self) -> None:
        connection = self.listener.accept()[0]
        self._when(connection, self._begin, connection)

    def _begin(self, connection: socket.socket) -> None:
        """Fork for the command that hands itself over. One whose connection is closed instead runs by itself."""
        self.events.unregister(connection)
        descriptors: list[int] = []
        try:
            descriptors = socket.recv_fds(connection, 1, HANDED_OVER)[1]
            if len(descriptors) == HANDED_OVER and self._as_good_as_new():
                self._fork(connection, descriptors)
            else:
                connection.close()
        except OSError:
            connection.close()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _as_good_as_new(self) -> bool:
        """Whether a fork runs what a new process would run. If not, no command is accepted any more.

        After an edit of the sources, a new process runs the new code; a fork would run the old, or a mixture.
        """
        if sources() == self.sources and len(list(TASKS.iterdir())) == 1:
            return True
        self._stop_accepting()
        return False

    def _stop_accepting(self) -> None:
        if self.listener.fileno() >= 0:
            self.events.unregister(self.listener)
            self.listener.close()

    def _fork(self, connection: socket.socket, descriptors: list[int]) -> None:
        gc.freeze()  # garbage collection in the fork leaves the shared memory alone
        pid = os.fork()
        if pid == 0:
            self._become(connection, descriptors)
        try:
            ended = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        with suppress(OSError):  # the fork does the same: nobody knows which of the two is first
            os.setpgid(pid, pid)
        self.running.add(pid)
        self._when(ended, self._finish, pid, ended, connection)
        self._when(connection, self._signal, pid, connection)
        with suppress(OSError):
            connection.send(ACCEPTED)

    def _signal(self, pid: int, connection: socket.socket) -> None:
        """Send the command the signals that its client got; SIGKILL if there is no client any more."""
        try:
            numbers = connection.recv(64)
        except OSError:
            numbers = b""
        if not numbers:
            self.events.unregister(connection)
        for number in numbers or [signal.SIGKILL]:
            os.killpg(pid, number)

    def _finish(self, pid: int, ended: int, connection: socket.socket) -> None:
        """Tell the client the exit code, negative for a signal."""
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.running.remove(pid)
        self.events.unregister(ended)
        os.close(ended)
        if connection in self.events.get_map():
            self.events.unregister(connection)
        with connection, suppress(OSError):
            connection.send(str(code).encode())

    def _become(self, connection: socket.socket, descriptors: list[int]) -> NoReturn:
        """In the fork: leave what is the server's, and be the command that handed itself over."""
        code = 1
        try:
            os.setpgid(0, 0)
            self.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self.pid:  # it ended before it was asked for that signal
                os._exit(code)
            *standard, request = descriptors
            for number, descriptor in enumerate(standard):
                os.dup2(descriptor, number)
                os.close(descriptor)
            connection.close()
            for key in list(self.events.get_map().values()):
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
                elif key.fileobj != STDIN:
                    os.close(key.fd)
            self.events.close()
            with os.fdopen(request) as file:
                wanted = json.load(file)
            os.chdir(wanted["folder"])
            os.environ.clear()
            os.environ.update(wanted["environment"])
            sys.argv = wanted["argv"]
            code = command()
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


def main() -> None:
    """Entry of the process that `fedflat.warm.start` starts."""
    listener, folder = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
    try:
        Server(listener).serve()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
