"""Zip archives of files with checksums: equal contents give equal bytes, and unpacking writes only into its folder."""

import hashlib
import re
import secrets
import shutil
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from fedflat.bench.experiments.results import CHECKSUMS
from fedflat.bench.files.atomic import replacing, write_text
from fedflat.bench.input.errors import UserError

OLDEST = (1980, 1, 1, 0, 0, 0)
"""The time of all files in an archive: the earliest one that zip can store."""

MOST_CHECKSUMS = 1 << 28
"""The largest allowed size of `CHECKSUMS` in bytes, because it is read at once."""

CHUNK = 1 << 20


def write_archive(archive: Path, files: Mapping[str, Path]) -> None:
    """Write an archive with these files, by their names in it, and their checksums."""
    lines = [f"{_sha256(file)}  {name}\n" for name, file in sorted(files.items())]
    with replacing(archive) as temporary, zipfile.ZipFile(temporary, "w") as zipped:
        checksums = "".join(lines).encode()
        zipped.writestr(_entry(CHECKSUMS, len(checksums)), checksums)
        for name, file in sorted(files.items()):
            with file.open("rb") as source, zipped.open(_entry(name, file.stat().st_size), "w") as target:
                shutil.copyfileobj(source, target, CHUNK)


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    """The description of a file, which depends on nothing but name and size."""
    entry = zipfile.ZipInfo(name, OLDEST)
    entry.compress_type, entry.file_size = zipfile.ZIP_DEFLATED, size
    entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16  # as on Linux
    return entry


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def unpack(archive: Path, folder: Path) -> int:
    """Unpack an archive into a new folder, which appears complete or not at all; return the number of files.

    A `UserError` if the archive has a member that is no plain file below its own folder, or whose content does not have
    the stated checksum. Nothing is executed.
    """
    if not archive.is_file():
        raise UserError(f"there is no archive '{archive}'")
    if folder.exists() or folder.is_symlink():
        raise UserError(f"'{folder}' already exists; give another folder with --out")
    work = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        with zipfile.ZipFile(archive) as zipped:
            size = _check_members(zipped, archive)
            digests = _checksums(zipped, archive)
            work.mkdir(parents=True)
            if size > (free := shutil.disk_usage(work).free):
                raise UserError(f"'{archive}' needs {size:,} bytes of disk space, and {free:,} are free")
            for name, digest in digests.items():
                _unpack_member(zipped, name, work / name, digest)
        work.rename(folder)
    except OSError as error:
        raise UserError(f"cannot unpack '{archive}' into '{folder}': {error.strerror or error}") from None
    except UnicodeEncodeError as error:
        raise UserError(
            f"cannot unpack '{archive}': the locale's encoding {error.encoding} lacks the character "
            f"'{error.object[error.start]}' of a file's name (allowed: a UTF-8 locale, such as LC_ALL=C.UTF-8)"
        ) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise UserError(f"'{archive}' is damaged, or no archive of 'fedflat export' ({error})") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return len(digests)


def state_checksums(folder: Path) -> None:
    """State the checksums of the files in an unpacked archive as they are now."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file != folder / CHECKSUMS)
    write_text(folder / CHECKSUMS, "".join(f"{_sha256(one)}  {one.relative_to(folder).as_posix()}\n" for one in files))


def _check_members(zipped: zipfile.ZipFile, archive: Path) -> int:
    """A `UserError` if a member is not safe to unpack; the bytes of all members."""
    names: set[str] = set()
    for entry in zipped.infolist():
        name = entry.orig_filename
        kind = stat.S_IFMT(entry.external_attr >> 16)
        reasons = {
            "it is a link or a device": kind not in (0, stat.S_IFREG, stat.S_IFDIR),
            "its path leads out of the folder": name.startswith("/") or ".." in PurePosixPath(name).parts,
            "its name is not allowed": not name.isprintable()
            or "\\" in name
            or re.match("[A-Za-z]:", name) is not None,
            "it is there twice": name in names,
            "its compression is not allowed": entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED),
        }
        names.add(name)
        if wrong := [reason for reason, is_so in reasons.items() if is_so]:
            raise UserError(f"'{archive}' is refused: {wrong[0]}: '{name}'; nothing was unpacked")
    return sum(entry.file_size for entry in zipped.infolist())


def _checksums(zipped: zipfile.ZipFile, archive: Path) -> dict[str, str]:
    """The stated checksum of every file, that of `CHECKSUMS` itself is computed; a `UserError` if a file has none."""
    names = {entry.filename for entry in zipped.infolist() if not entry.is_dir()}
    if CHECKSUMS not in names or zipped.getinfo(CHECKSUMS).file_size > MOST_CHECKSUMS:
        raise UserError(f"'{archive}' is no archive of 'fedflat export': it has no {CHECKSUMS}")
    content = zipped.read(CHECKSUMS)
    digests = {CHECKSUMS: hashlib.sha256(content).hexdigest()}
    for line in content.decode().splitlines():
        stated = re.fullmatch("([0-9a-f]{64})  (.+)", line)
        if stated is None:
            raise ValueError(f"{CHECKSUMS} has an odd line")
        digests[stated[2]] = stated[1]
    if other := sorted(names ^ digests.keys()):
        where = f"is not in {CHECKSUMS}" if other[0] in names else "is missing"
        raise ValueError(f"'{other[0]}' {where}")
    return digests


def _unpack_member(zipped: zipfile.ZipFile, name: str, file: Path, digest: str) -> None:
    """Write a member to a new file; a ValueError if it does not have the SHA-256 `digest`."""
    found = hashlib.sha256()
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipped.open(name) as source, file.open("xb") as target:
        while chunk := source.read(CHUNK):
            found.update(chunk)
            target.write(chunk)
    if found.hexdigest() != digest:
        raise ValueError(f"'{name}' does not match its checksum")
