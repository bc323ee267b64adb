"""User-defined files that affect a run's numbers: the hash of their content identifies them, not their path."""

import functools
import hashlib
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from fedflat.bench.input.errors import UserError
from fedflat.bench.input.field_words import FilledIn
from fedflat.bench.input.frozen import Frozen

MOST_BYTES = 1 << 30
"""The largest file of a user that is read at once: larger ones are hardly meant, and may not fit into the memory."""


def read_own(file: Path, kind: str) -> bytes:
    """The bytes of a file of this kind, such as "method file"; a `UserError` if it cannot be read.

    Only regular files are read: a device or a pipe, such as /dev/zero, may never end.
    """
    with _unreadable_in_one_line(file, kind):
        status = file.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise UserError(f"cannot read the {kind} '{file}': it is a device or a pipe (allowed: a file)")
        if status.st_size > MOST_BYTES:
            raise UserError(f"cannot read the {kind} '{file}': it has {status.st_size:,} bytes (allowed: 1 GiB)")
        return file.read_bytes()


@contextmanager
def _unreadable_in_one_line(file: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot read the {kind} '{file}': {error.strerror}") from None
    except ValueError as error:  # a NUL in the path, or a letter that the locale lacks
        raise UserError(f"cannot read the {kind} '{file}': {error}") from None


def short_hash(*parts: str | bytes | memoryview, digits: int = 16) -> str:
    """SHA-256 of the parts in their order, as if they were one text or file; the first `digits` hex digits."""
    digest = ShortHash()
    for part in parts:
        digest.add(part)
    return digest.text(digits)


class ShortHash:
    """SHA-256 of parts that are added one by one, such as images that do not fit in memory."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, part: str | bytes | memoryview) -> None:
        """Append a part."""
        self._digest.update(part.encode() if isinstance(part, str) else part)

    def text(self, digits: int = 16) -> str:
        """The first hex digits."""
        return self._digest.hexdigest()[:digits]


def file_hash(file: Path, kind: str) -> str:
    """The hash of a file of any size, which is read in parts, once per process as long as size and time stay the same.

    A `UserError` as for `read_own`.
    """
    with _unreadable_in_one_line(file, kind):
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"cannot read the {kind} '{file}': it is no regular file")
        return _hash_of_file(file, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=32)
def _hash_of_file(file: Path, size: int, time: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def named_contents(files: Iterable[Path], root: Path) -> Iterator[str | bytes]:
    """The path of each file relative to `root` and its content, in alphabetical order, as parts of a hash."""
    for file in sorted(files):
        yield str(file.relative_to(root))
        yield file.read_bytes()


def code_hash(file: Path, known: object, kind: str) -> str:
    """The hash of a code file; a `UserError` if it differs from `known`, the hash in a configuration."""
    code = _hash_of_whole(file, kind)
    if known not in (None, code):
        raise _changed(file, kind)
    return code


def _changed(file: Path, kind: str) -> UserError:
    return UserError(f"the {kind} '{file}' has changed: its hash differs from the one in the configuration")


def expanded(path: str | Path, what: str) -> Path:
    """The path with ~ expanded; a `UserError` that begins with `what` if it is empty or has no home folder."""
    if not str(path).strip():
        raise UserError(f"{what} is empty (allowed: a path)")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UserError(f"{what} = '{path}': there is no such home folder") from None


def _hash_of_whole(file: Path, kind: str) -> str:
    return short_hash(read_own(file, kind))


def with_hash(data: Any, kind: str, hash_of: Callable[[Path, str], str] = _hash_of_whole) -> Any:
    """The fields of a configuration, completed by the `hash` of its `file`, which `hash_of` computes.

    A hash that is already in the fields, as in a finished run's configuration, is used: the file may no longer exist.
    """
    if not isinstance(data, Mapping) or not isinstance(file := data.get("file"), str | Path):
        return data
    file = expanded(file, f"the path of the {kind}")
    if data.get("hash") is not None:
        return {**data, "file": file}
    return {**data, "file": file, "hash": hash_of(file, kind)}


def read_known(file: Path, known_hash: str | None, kind: str) -> bytes:
    """The bytes of a file whose hash a configuration holds; a `UserError` if the content has changed."""
    content = read_own(file, kind)
    if short_hash(content) != known_hash:
        raise _changed(file, kind)
    return content


class HashedFile(Frozen):
    """A file in a configuration, with the hash of its content; `kind` names the kind of file in messages."""

    kind: ClassVar[str]
    hash_of: ClassVar[Callable[[Path, str], str]]

    file: Path
    hash: Annotated[str | None, FilledIn()] = Field(default=None, description="of the file's content; filled in")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        return with_hash(data, cls.kind, cls.hash_of)

    @property
    def what(self) -> str:
        """The name of the file in messages."""
        return f"the {self.kind} '{self.file}'"


class LargeFile(HashedFile):
    """A file of any size, whose hash is computed in parts. Check it with `unchanged` before reading it."""

    hash_of = file_hash

    def unchanged(self) -> Path:
        """The path of the file; a `UserError` if its content has changed."""
        if file_hash(self.file, self.kind) != self.hash:
            raise _changed(self.file, self.kind)
        return self.file


class KnownFile(HashedFile):
    """A file that is read as a whole."""

    hash_of = _hash_of_whole

    def content(self) -> bytes:
        """The bytes of the file; a `UserError` if they have changed."""
        return read_known(self.file, self.hash, self.kind)


def stem(file: Path) -> str:
    """The file's name without folder and ending; characters that labels do not allow are replaced by dashes."""
    name = file.name.removesuffix(".gz")
    name = name.removesuffix(Path(name).suffix) if Path(name).suffix in {".csv", ".npz", ".parquet"} else name
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name).strip("-._+")
