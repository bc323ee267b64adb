"""A warm process for many `fedflat` commands on one machine: it imports torch and the rest once, and forks for each.

Snakemake starts it. A command that finds it hands itself over: arguments, folder, environment, and its open stdin,
stdout and stderr. It then only passes signals on and waits for the exit code. The warm process is a short cut and
nothing more: a command that cannot reach it runs by itself. This module is what must be quick to import; the other side
is in `fedflat.warm_server`.
"""

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from bench.host.threads import ONE_THREAD

VARIABLE = "FEDFLAT_WARM"
"""The environment variable that names the folder of the socket."""

ACCEPTED = b"+"
HANDED_OVER = 4
"""Descriptors: stdin, stdout, stderr, and the request."""
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def start() -> None:
    """Start the warm process, and tell it to all commands that this process starts; it ends when this one does.

    Nothing happens where it could not work safely, as on macOS, whose libraries do not survive a fork.
    """
    if sys.platform != "linux":
        return
    folder = tempfile.mkdtemp(prefix="fedflat-")  # only this user may enter it
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(_socket(folder))
        except OSError:  # the path of the temporary folder is too long for a socket
            return
        listener.listen()  # commands wait from now on, while the server imports
        alive, _ = os.pipe()  # the other end stays open until this process ends, however it ends
        subprocess.Popen(
            [sys.executable, "-P", "-m", "fedflat.warm_server", str(listener.fileno()), folder],
            stdin=alive, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()], env={**os.environ, **ONE_THREAD}, start_new_session=True,
        )  # fmt: skip
        os.close(alive)
    os.environ[VARIABLE] = folder


def _socket(folder: str) -> str:
    """The socket's path. It tells the installation, so that a command of another one does not find it."""
    return str(Path(folder, f"{zlib.crc32(f'{sys.executable} {__file__}'.encode()):08x}"))


def hand_over() -> int | None:
    """Have the warm process run this command: its exit code, or None if there is no warm process.

    If a signal ends the command, the same signal ends this process.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(_socket(folder))
        except OSError:
            return None
        with _passing_signals_on(connection):
            if not _accepted(connection):
                return None
            try:
                told = connection.recv(16)
            except OSError:
                told = b""
    code = int(told or -signal.SIGKILL)  # without an answer, the warm process was killed, and the command with it
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _accepted(connection: socket.socket) -> bool:
    try:
        with os.fdopen(os.memfd_create("request"), "w+") as request:
            json.dump({"argv": sys.argv, "folder": str(Path.cwd()), "environment": dict(os.environ)}, request)
            request.seek(0)
            socket.send_fds(connection, [b"\0"], [0, 1, 2, request.fileno()])
        return connection.recv(1) == ACCEPTED
    except OSError:
        return False


@contextlib.contextmanager
def _passing_signals_on(connection: socket.socket) -> Iterator[None]:
    """Send the number of each signal to the server, which sends it to the command. An ignored one stays ignored."""

    def pass_on(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            connection.send(bytes([number]))

    old = {number: signal.signal(number, pass_on) for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
