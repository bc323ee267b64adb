"""Runs `fedflat` commands in forks of one process that has already imported torch, pandas and matplotlib.

Snakemake runs many short jobs. A new process spends two to three seconds of CPU time on these imports, a fork none: 24
short jobs on two cores took 19.5 seconds of CPU time with forks, and 66.5 with a new process for each job. The server
itself is a fork of Snakemake's process, which has imported most of these modules in order to plan the jobs.
Snakemake's `group:` alone shares no process between jobs: on one machine it has no effect, and in a group that was
submitted to a cluster, Snakemake starts each `run:` job as a process. The Snakefile changes this.

Client and server communicate through a pair of connected sockets. These have no path, so no other process can send
commands.
"""

import ctypes
import gc
import importlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from fedflat.bench.training.code_version import code_fingerprint

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15  # linux/prctl.h
SERVER, COMMAND = b"fedflat-server", b"fedflat"
"""The names of the processes, as ps and top show them."""
MAX_BYTES = 1 << 17
"""The maximum size of a message, which holds the arguments of one command as JSON."""

IMPORTED = (
    "torch._dynamo",  # torch.func's gradients import it, which takes a second
    "torch.fx.experimental.symbolic_shapes",  # Hessian-vector products import it, in half a second
    "fedflat.analysis.analyses.run_analysis",
    "fedflat.analysis.report.report",
    "fedflat.cli.app",
)
"""The modules that commands use."""


class CommandServer:
    """Forks the server at once; the server ends with the process that created this object.

    That process should have no other threads yet, should not have used a GPU, and should have loaded the numerical
    libraries in the environment `ONE_THREAD`. Forking is safe only on Linux. On other systems, every command runs in a
    new process.
    """

    def __init__(self) -> None:
        self._server = _forked() if sys.platform == "linux" else None

    def __call__(self, log: Iterable[str], *arguments: object) -> None:
        """Run `fedflat ARGUMENTS` and write its output to the first file of `log`; thread-safe.

        Raises `CalledProcessError` if the command fails.
        """
        command = ["fedflat", *map(str, arguments)]
        with Path(next(iter(log))).open("w", encoding="utf-8") as output:
            print(shlex.join(command), file=output, flush=True)
            code = self._run(command[1:], output.fileno())
        if code != 0:
            raise subprocess.CalledProcessError(code, command)

    def _run(self, arguments: list[str], output: int) -> int:
        if self._server is not None:
            with suppress(OSError):  # the server has ended; if it failed to import, the new process reports the reason
                return self._fork(*self._server, arguments, output)
        command = [sys.executable, "-P", "-m", "fedflat", *arguments]
        return subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode

    @staticmethod
    def _fork(server: int, commands: socket.socket, arguments: list[str], output: int) -> int:
        read_end, write_end = os.pipe()
        with os.fdopen(read_end, "rb") as exit_code:
            try:
                socket.send_fds(commands, [json.dumps(arguments).encode()], [output, write_end])
            finally:
                os.close(write_end)
            code = exit_code.read(1)  # empty if a signal, most likely SIGKILL, ended the fork or the server
        if code:
            return code[0]
        # The pipe of a server that is ending may be closed before the process has ended.
        for _ in range(100):
            if os.waitid(os.P_PID, server, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                raise ConnectionResetError("the command server has ended")
            time.sleep(0.01)
        return -signal.SIGKILL


def _forked() -> tuple[int, socket.socket]:
    """Fork the server; return its process id, and the socket for sending commands to it.

    Not as a process of `multiprocessing`: methods and models of users could start no such processes in its forks.
    """
    ours, servers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with servers:
        server = os.fork()
        if server == 0:
            try:
                _serve(servers, ours)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
    return server, ours


def _serve(requests: socket.socket, commands: socket.socket) -> None:
    """Fork for each command that arrives, until no process holds the other end of the socket, `commands`."""
    commands.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the forks themselves
    _prctl(PR_SET_NAME, SERVER)
    message, descriptors = _received(requests)
    if message:
        _import()
        gc.freeze()  # garbage collection in a fork then leaves the shared memory alone
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system removes ended forks
    while message:
        if os.fork() == 0:
            requests.close()
            _be_command(message, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        message, descriptors = _received(requests)


def _received(requests: socket.socket) -> tuple[bytes, list[int]]:
    message, descriptors, *_ = socket.recv_fds(requests, MAX_BYTES, 2)
    return message, descriptors


def _prctl(*arguments: object) -> None:
    ctypes.CDLL(None).prctl(*arguments)


def _import() -> None:
    """Import and build what commands use. Forks run and record this version of the code, even after edits."""
    for module in IMPORTED:
        importlib.import_module(module)
    from fedflat.cli.app import built  # noqa: PLC0415 - imported here, not by Snakemake's process

    built()
    code_fingerprint()


def _be_command(message: bytes, output: int, exit_code: int) -> NoReturn:
    """Run a command in a fork: write its output and its exit code to the file descriptors `output` and `exit_code`."""
    code = 1
    try:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a fork ends when the server ends
        _prctl(PR_SET_NAME, COMMAND)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for standard in (sys.stdout, sys.stderr):
            os.dup2(output, standard.fileno())
        os.close(output)
        sys.argv = ["fedflat", *json.loads(message)]
        from fedflat.cli.app import command  # noqa: PLC0415

        code = command()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os.write(exit_code, bytes([code]))
        os._exit(code)
