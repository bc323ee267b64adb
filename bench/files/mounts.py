"""File systems whose locks hold on one machine only, although other machines see the same files."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOUNTS = Path("/proc/self/mountinfo")

LOCAL_OPTIONS = {
    "nfs": ("nolock", "local_lock=all", "local_lock=flock"),
    "nfs4": ("nolock", "local_lock=all", "local_lock=flock"),
    "lustre": ("localflock",),
}
"""Mount options with which a shared file system keeps locks on the machine."""
LOCAL_TYPES = ("fuse.sshfs",)
"""Shared file systems that have no locks between machines."""


class _Mount(NamedTuple):
    point: Path
    kind: str
    options: frozenset[str]


def locks_on_this_machine_only(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """Why locks of files in a folder do not hold between machines, in words; None if that is not known.

    `mounts`: a file as described in proc_pid_mountinfo(5); it exists on Linux only.
    """
    place = folder.resolve()  # the folder of results is often a link to a larger disk
    mount = next((mount for mount in reversed([*_mounts(mounts)]) if place.is_relative_to(mount.point)), None)
    if mount is None:
        return None
    options = [option for option in LOCAL_OPTIONS.get(mount.kind, ()) if option in mount.options]
    if options or mount.kind in LOCAL_TYPES:
        return f"'{mount.point}' is mounted as {', '.join([mount.kind, *options])}"
    return None


def _mounts(file: Path) -> Iterator[_Mount]:
    """All mounts; a later one hides earlier ones at the same place or above it."""
    try:
        lines = file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        general, _, special = line.partition(" - ")
        words, (kind, _, more) = general.split(" "), special.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), words[4])
        yield _Mount(Path(point), kind, frozenset((*words[5].split(","), *more.split(","))))
