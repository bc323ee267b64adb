"""Files of a published data set: where they come from, where they belong, and whether they are what was published."""

import gzip
import hashlib
import logging
import shlex
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from bench.files.atomic import replacing
from bench.files.locks import locked
from bench.host.torchvision_compat import import_torchvision
from bench.input.errors import UserError

MISSING = "missing"

log = logging.getLogger("fedflat.data")


@dataclass(frozen=True)
class File:
    """A file below the data root; `md5` as published, None where it is not; `url` of files that can be fetched."""

    path: str
    md5: str | None = None
    url: str | None = None

    def problem(self, root: Path) -> str | None:
        """What is wrong with the file, which is read in full; None if nothing is."""
        file = root / self.path
        if not file.is_file():
            return MISSING
        found = _md5(file)
        return None if self.md5 in (None, found) else f"corrupt: its md5 is {found} instead of {self.md5}"


@dataclass(frozen=True)
class Origin:
    """A published data set's files: those that are read (`members`), and the archive that holds them, if one does.

    Members of an archive are found in it under their path below the archive's own folder.
    """

    homepage: str
    licence: str
    members: tuple[File, ...]
    archive: File | None = None

    @property
    def downloads(self) -> tuple[File, ...]:
        """What is fetched: the archive, or the members themselves."""
        return self.members if self.archive is None else (self.archive,)

    def status(self, root: Path) -> str:
        """In a word: there, archive (to be unpacked), or missing. Nothing is read."""
        if all((root / member.path).is_file() for member in self.members):
            return "there"
        return "archive" if self.archive and (root / self.archive.path).is_file() else MISSING

    def problems(self, root: Path) -> list[tuple[File, str | None]]:
        """What is wrong with each file, None for nothing; all are read in full. Any of two forms is enough."""
        files = self.members if self.archive is None else (self.archive, *self.members)
        return [(file, file.problem(root)) for file in files]

    def fetch(self, root: Path) -> None:
        """Download what is not there, or not what was published."""
        for file in self.downloads:
            if file.problem(root) is not None:
                _download(file, root)

    def advice(self, name: str, root: Path) -> str:
        """What to put where."""
        wanted = [file for file in self.downloads if not (root / file.path).is_file()] or list(self.downloads)
        files = ", ".join(f"{file.url} as '{root / file.path}'" for file in wanted)
        return f"put {files}, or run 'fedflat data prepare {name} --download --root {shlex.quote(str(root))}'"

    def provide(self, name: str, root: Path) -> list[Path]:
        """The members' paths, unpacked from a verified archive where they are not there yet.

        A `UserError` says what is missing or corrupt, and what to do. Nothing is fetched.
        """
        status = self.status(root)
        if status == MISSING:
            first = next(file for file in self.members if not (root / file.path).is_file())
            raise UserError(f"data set {name}: '{root / first.path}' is missing; {self.advice(name, root)}")
        if status == "archive":
            assert self.archive is not None  # status says so
            with locked(root / self.archive.path):
                if self.status(root) == "archive":  # another process may have been first
                    self._unpack(name, root)
        return [root / member.path for member in self.members]

    def verify(self, name: str, root: Path, member: File) -> Path:
        """A member's path; a `UserError` if its content is not what was published."""
        problem = member.problem(root)
        if problem is not None:
            raise self.complaint(name, root, member, problem)
        return root / member.path

    def complaint(self, name: str, root: Path, file: File, problem: str) -> UserError:
        """What is wrong with a file, and what to do."""
        return UserError(
            f"data set {name}: '{root / file.path}' is {problem}; delete it, then {self.advice(name, root)}"
        )

    def _unpack(self, name: str, root: Path) -> None:
        assert self.archive is not None  # status says so
        archive = self.verify(name, root, self.archive)
        log.info("unpacking %s", archive)
        base = PurePosixPath(self.archive.path).parent
        wanted = {str(PurePosixPath(member.path).relative_to(base)): root / member.path for member in self.members}
        try:
            for inside, stream in _entries(archive):
                if inside in wanted:
                    with replacing(wanted.pop(inside)) as temporary, temporary.open("wb") as file:
                        shutil.copyfileobj(stream, file)
        except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise UserError(f"data set {name}: the archive '{archive}' cannot be unpacked ({error})") from None
        if wanted:
            raise UserError(f"data set {name}: the archive '{archive}' does not hold {min(wanted)}")


def _entries(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The files in an archive, by name, in stored order."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                with zipped.open(entry) as stream:
                    yield entry.filename, stream
    else:
        with tarfile.open(archive) as tarred:
            for member in tarred:
                if (extracted := tarred.extractfile(member)) is not None:
                    yield member.name.removeprefix("./"), extracted


def _md5(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _download(file: File, root: Path) -> None:
    """Fetch one file, verify it, and put it in its place, which stays empty if anything goes wrong."""
    import_torchvision()
    from torchvision.datasets.utils import download_url  # noqa: PLC0415 - takes seconds to import

    assert file.url is not None  # only files that can be fetched are
    target = root / file.path
    with replacing(target) as temporary:
        temporary.unlink()
        log.info("fetching %s", file.url)
        try:
            download_url(file.url, str(temporary.parent), temporary.name, file.md5)
        except (OSError, RuntimeError) as error:
            raise UserError(f"cannot fetch {file.url} ({error}); fetched elsewhere, it belongs at '{target}'") from None
