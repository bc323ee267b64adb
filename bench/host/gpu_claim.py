"""GPU claims: each process takes a GPU that no other process of this user has claimed; a claim is a locked file."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from fedflat.bench.files.locks import lock
from fedflat.bench.files.own_folders import check_private, make_private
from fedflat.bench.host.progress import Progress
from fedflat.bench.input.errors import UserError

POLL_SECONDS = 0.5

_claimed: dict[Path, int] = {}
"""The lock file of each GPU of this process, and the descriptor that holds the lock until the process ends."""


def claims_folder(shared: Path = Path("/tmp")) -> Path:
    """The folder of this user's lock files on this machine, in the folder `shared` of all users.

    All processes must use the same folder. TMPDIR may differ from job to job; jobs of cron lack XDG_RUNTIME_DIR, whose
    folder is removed at logout while processes go on. So that folder is only used if another user has made the one in
    `shared`.
    """
    folder = shared / f"fedflat-gpus-{os.geteuid()}"
    try:
        make_private(folder)
    except UserError:
        runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
        if runtime.is_absolute() and _is_private(runtime):
            return runtime / "fedflat-gpus"
    return folder  # if it cannot be used, `claim` says why


def _is_private(folder: Path) -> bool:
    try:
        check_private(folder)
    except UserError:
        return False
    return True


def claim(gpus: Sequence[str], folder: Path, progress: Progress) -> int:
    """Claim a GPU until this process ends, and return its index; a second call returns the same GPU.

    `gpus`: names that are the same in all processes, such as UUIDs. If all GPUs are claimed, the call reports this once
    and waits for one.
    """
    files = [folder / f"{gpu}.lock" for gpu in gpus]
    for index, file in enumerate(files):
        if file in _claimed:
            return index
    try:
        make_private(folder)
    except UserError as error:
        raise UserError(f"cannot claim a GPU: {error}; --device cuda:0 takes one without a claim") from None
    try:
        reported = False
        while True:
            for index, file in enumerate(files):
                if (descriptor := lock(file)) is not None:
                    _claimed[file] = descriptor
                    return index
            if not reported:
                names = ", ".join(f"cuda:{index}" for index in range(len(gpus)))
                progress(f"waiting for a GPU: other processes hold {names} (--device cuda:0 would not wait)")
                reported = True
            time.sleep(POLL_SECONDS)
    except OSError as error:
        raise UserError(f"cannot claim a GPU in '{folder}': {error.strerror}") from None
