"""Files of a user's own that decide a run's numbers: they are known by their content, not by their place."""

import hashlib
from pathlib import Path

from bench.errors import UserError


def read_own(file: Path, kind: str) -> bytes:
    """The bytes of a file of this kind, such as "method file"; a `UserError` if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the {kind} '{file}': {error.strerror}") from None


def hash_of(content: bytes) -> str:
    """SHA-256, first 16 hex digits."""
    return hashlib.sha256(content).hexdigest()[:16]
