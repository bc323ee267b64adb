"""The files of a published data set: their URLs, their paths below the data root, and their checksums."""

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

from fedflat.bench.files.atomic import replacing
from fedflat.bench.files.locks import locked
from fedflat.bench.host.torchvision_compat import import_torchvision
from fedflat.bench.input.errors import UserError

MISSING = "missing"

log = logging.getLogger("fedflat.data")


@dataclass(frozen=True)
class File:
    """A file below the data root, with the published `md5`, if there is one, and the `url` for downloading it.

    `name`: what a file without a URL is, for instructions.
    """

    path: str
    md5: str | None = None
    url: str | None = None
    name: str = ""

    def problem(self, root: Path) -> str | None:
        """The problem of the file, in words; None if it is correct. The file is read completely."""
        file = root / self.path
        if not file.is_file():
            return MISSING
        found = _md5(file)
        return None if self.md5 in (None, found) else f"corrupt: its md5 is {found} instead of {self.md5}"


@dataclass(frozen=True)
class Origin:
    """The files of a published data set: those that are read (`members`), and the archive with them, if there is one.

    The path of a member in the archive is its path relative to the folder of the archive. `repackaged`: other files
    with the same samples.
    """

    homepage: str
    licence: str
    members: tuple[File, ...]
    archive: File | None = None
    repackaged: "Origin | None" = None

    def used(self, root: Path) -> "Origin":
        """The files that are read: these, unless only the repackaged ones are there, or need no unpacking."""
        both = [one for one in (self, self.repackaged) if one is not None]
        return min(both, key=lambda one: ("there", "archive", MISSING).index(one.status(root)))

    @property
    def downloads(self) -> tuple[File, ...]:
        """The files to download: the archive, or the members themselves."""
        return self.members if self.archive is None else (self.archive,)

    def status(self, root: Path) -> str:
        """One of: there, archive (to be unpacked), missing. No file is read."""
        if all((root / member.path).is_file() for member in self.members):
            return "there"
        return "archive" if self.archive and (root / self.archive.path).is_file() else MISSING

    def problems(self, root: Path) -> list[tuple[File, str | None]]:
        """Each file with its problem, in words; None if it is correct. All files are read completely."""
        files = self.members if self.archive is None else (self.archive, *self.members)
        return [(file, file.problem(root)) for file in files]

    def fetch(self, root: Path) -> None:
        """Downloads the files that are missing or corrupt."""
        for file in self.downloads:
            if file.problem(root) is not None:
                _download(file, root)

    def advice(self, name: str, root: Path) -> str:
        """Instructions: which files to save under which paths."""
        files = ", ".join(self._to_save(root))
        others = [] if self.repackaged is None else self.repackaged._to_save(root)
        command = f"run 'fedflat data prepare {name} --download --root {shlex.quote(str(root))}'"
        return ", or ".join([f"put {files}", *others, command])

    def _to_save(self, root: Path) -> list[str]:
        """The files to save, each with its path: those that are missing, or all."""
        wanted = [file for file in self.downloads if not (root / file.path).is_file()] or list(self.downloads)
        return [f"{file.url or file.name} as '{root / file.path}'" for file in wanted]

    def require(self, name: str, root: Path) -> None:
        """Raises `UserError` with instructions if files are missing. No file is read."""
        if self.status(root) == MISSING:
            first = next(file for file in self.members if not (root / file.path).is_file())
            raise UserError(f"data set {name}: '{root / first.path}' is missing; {self.advice(name, root)}")

    def provide(self, name: str, root: Path) -> list[Path]:
        """The paths of the members, which are unpacked from the verified archive if they are missing.

        Raises `UserError` with instructions if files are missing or corrupt. Nothing is downloaded.
        """
        self.require(name, root)
        if self.status(root) == "archive":
            assert self.archive is not None  # status says so
            with locked(root / self.archive.path):
                if self.status(root) == "archive":  # another process may have unpacked it
                    self._unpack(name, root)
        return [root / member.path for member in self.members]

    def verify(self, name: str, root: Path, member: File) -> Path:
        """The path of a member. Raises `UserError` if its checksum is not the published one."""
        problem = member.problem(root)
        if problem is not None:
            raise self.complaint(name, root, member, problem)
        return root / member.path

    def complaint(self, name: str, root: Path, file: File, problem: str) -> UserError:
        """The error for a wrong file, with instructions."""
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
    """Names and contents of the files in an archive, in stored order."""
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
    """Downloads and verifies a file. If that fails, no file remains."""
    import_torchvision()
    from torchvision.datasets.utils import download_url  # noqa: PLC0415 - takes seconds to import

    assert file.url is not None  # only files with a URL are downloaded
    target = root / file.path
    with replacing(target) as temporary:
        temporary.unlink()
        log.info("downloading %s", file.url)
        try:
            download_url(file.url, str(temporary.parent), temporary.name, file.md5)
        except (OSError, RuntimeError) as error:
            raise UserError(
                f"cannot download {file.url} ({error}); download it elsewhere and save it as '{target}'"
            ) from None
