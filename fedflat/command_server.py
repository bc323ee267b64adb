"""Runs `fedflat` commands in forks of one process that has imported torch, pandas and matplotlib already.

Snakemake runs many short jobs. A new process spends two to three seconds of CPU time on these imports, a fork none.
The server is reached through one of two connected sockets, which have no path: no other process can send it commands.
"""

import gc
import importlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from bench.host.threads import ONE_THREAD

MAX_BYTES = 1 << 17
"""The longest message: the arguments of one command as JSON."""


class CommandServer:
    """Starts the server process with the first command; the server ends with the process that started it.

    Without Linux, whose processes can be forked safely, every command runs in a new process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def __call__(self, log: Iterable[str], *arguments: object) -> None:
        """Run `fedflat ARGUMENTS` with its output in the first file of `log`; several threads may do so at a time.

        Raises `CalledProcessError` if the command fails.
        """
        command = ["fedflat", *map(str, arguments)]
        with Path(next(iter(log))).open("w", encoding="utf-8") as output:
            print(shlex.join(command), file=output, flush=True)
            code = self._run(command[1:], output.fileno())
        if code != 0:
            raise subprocess.CalledProcessError(code, command)

    def _run(self, arguments: list[str], output: int) -> int:
        if sys.platform == "linux":
            with suppress(OSError):  # the server could not import the project: the command will say why
                return self._fork(arguments, output)
        command = [sys.executable, "-P", "-m", "fedflat", *arguments]
        return subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode

    def _fork(self, arguments: list[str], output: int) -> int:
        with self._lock:
            self._socket = self._socket or _started()
        read_end, write_end = os.pipe()
        with os.fdopen(read_end, "rb") as exit_code:
            try:
                socket.send_fds(self._socket, [json.dumps(arguments).encode()], [output, write_end])
            finally:
                os.close(write_end)
            code = exit_code.read(1)  # empty if the fork was killed
        return code[0] if code else -signal.SIGKILL


def _started() -> socket.socket:
    """Start the server; the socket through which it is reached."""
    ours, servers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with servers:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "fedflat.command_server", str(servers.fileno())],
            stdin=subprocess.DEVNULL, pass_fds=[servers.fileno()], env={**os.environ, **ONE_THREAD},
        )  # fmt: skip
    return ours


def serve(requests: socket.socket) -> None:
    """Fork for each command that arrives, until the other end of the socket is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the forks themselves
    _import()
    gc.freeze()  # garbage collection in a fork then leaves the shared memory alone
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system removes ended forks
    while True:
        message, descriptors, *_ = socket.recv_fds(requests, MAX_BYTES, 2)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            _be_command(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _import() -> None:
    """Import what commands use. Forks run and record this code, even if a source file is edited later."""
    # Hessian-vector products import the first one, in half a second.
    for module in ("torch.fx.experimental.symbolic_shapes", "analysis.analyses.run_analysis", "analysis.report.report"):
        importlib.import_module(module)
    from bench.training.code_version import code_fingerprint  # noqa: PLC0415
    from fedflat.cli.app import command  # noqa: F401, PLC0415

    code_fingerprint()


def _be_command(arguments: list[str], output: int, exit_code: int) -> NoReturn:
    """In a fork: run a command with its output in one file, write its exit code to another, and end."""
    from fedflat.cli.app import command  # noqa: PLC0415

    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for standard in (sys.stdout, sys.stderr):
            os.dup2(output, standard.fileno())
        os.close(output)
        sys.argv = ["fedflat", *arguments]
        code = command()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os.write(exit_code, bytes([code]))
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
