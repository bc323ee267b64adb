"""GPU claims: each process takes a GPU that no other process of this user has claimed; a claim is a locked file."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from bench.files.locks import lock
from bench.host.progress import Progress
from bench.input.errors import UserError

POLL_SECONDS = 0.5

_claimed: dict[Path, int] = {}
"""The lock file of each GPU of this process, and the descriptor that holds the lock until the process ends."""


def claims_folder() -> Path:
    """The folder of this user's lock files on this machine; not in TMPDIR, which may differ from job to job."""
    return Path(f"/tmp/fedflat-gpus-{os.getuid()}")


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
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
