"""Decoded samples as memory-mapped files, which are built once per source, and again if they are damaged or if the
files of the source change.

    images.u8     pixels `[n, channels, height, width]`, row-major; images.f32 and images.i32: inputs
                  `[n, ...]` in float32, and token ids
    maps.u8       label maps `[n, height, width]`, if the source has them
    labels.npy    `[n]`; likewise groups.npy and names.npy, if the source has them
    meta.json     hash of the key for which the files were built, shape, number format, content hash, mean and
                  deviation per channel, and the size and time of the other files

A cached subset appears complete, by one rename; likewise several that are built together. Its pages are read on demand
and stay in memory as long as there is room.
"""

import json
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedflat.bench.data.dataset import Samples
from fedflat.bench.data.label_maps import UNLABELLED
from fedflat.bench.data.moments import SCALE, PixelSums
from fedflat.bench.data.root import say_if_new
from fedflat.bench.files.csv_json import read_checked_json, write_checked_json
from fedflat.bench.files.locks import locked
from fedflat.bench.host.termination import tidy_when_terminated
from fedflat.bench.input.content import ShortHash, short_hash
from fedflat.bench.input.errors import UserError

log = logging.getLogger("fedflat.data")

FORMAT = 1
META = "meta.json"
MAPS = "maps.u8"
FORMATS = {"uint8": ("images.u8", SCALE), "float32": ("images.f32", 1.0), "int32": ("images.i32", 1.0)}
"""By number format of the inputs, the name of their file and the unit of means and deviations."""

READ_BYTES = 2 << 30
"""Inputs of at most this size are read and compared with their hash by every process that loads them. All published
data sets are smaller. Reading larger ones would take longer than a command needs to begin."""

_INTACT: set[tuple[Path, str]] = set()
"""The entries that this process has compared with their hash, with the sizes and times of their files."""


@dataclass(frozen=True)
class Cached:
    """Samples of the cache, with mean and standard deviation of their pixels per channel, in units of `scale`, 255.

    Other inputs than bytes are used as they are: scale and deviation are 1, the mean is 0.
    """

    samples: Samples
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def scale(self) -> float:
        """The unit of mean and deviation."""
        return FORMATS[self.samples.images.dtype.name][1]


def signature(files: Iterable[Path], base: Path) -> list[tuple[str, int, int]]:
    """Path below `base`, size and time of change of every file. If one of them differs, the source has changed.

    As for make, a file with the same size and time counts as unchanged; `fedflat data check` reads it completely.
    Raises `UserError` if the system denies access.
    """
    try:
        return [(str(file.relative_to(base)), (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files]
    except PermissionError as error:
        raise UserError(f"cannot read '{error.filename}': {error.strerror}") from None


def in_chunks(samples: Samples, size: int = 2000) -> Iterator[Samples]:
    """Consecutive samples in chunks of this size, so that working on one takes little memory."""
    for first in range(0, len(samples), size):
        yield samples[first : first + size]


def cached(place: Path, key: Mapping[str, Any], classes: int | None, chunks: Callable[[], Iterable[Samples]]) -> Cached:
    """The cached samples in the folder `place`, built from `chunks` if missing, damaged, or built for another key.

    A second process waits for the first. Raises `UserError` if labels are not 0..classes−1 (None: they have been
    checked), images differ in size, or the folder cannot be written to; then no incomplete files remain.
    """
    return cached_together(place, key, classes, {"": chunks})[""]


def cached_together(
    place: Path, key: Mapping[str, Any], classes: int | None, parts: Mapping[str, Callable[[], Iterable[Samples]]]
) -> dict[str, Cached]:
    """As `cached`, for several parts, each in a folder of its name in `place`: if one must be built, all are."""
    wanted = _digest(key)
    found = _all(_intact, place, wanted, parts)
    if found is not None:
        return found
    say_if_new(place)
    try:
        with locked(place):
            found = _all(_intact, place, wanted, parts)
            if found is None:
                for name in parts:
                    if _read(place / name, wanted) is not None and _intact(place / name, wanted) is None:
                        log.info("the cache '%s' is damaged: its content does not match its hash", place / name)
                with tidy_when_terminated():  # decoded images can fill a disk
                    _build(place, wanted, classes, parts)
                found = _all(_read, place, wanted, parts)
    except OSError as error:
        # A full disk is reported without a file name.
        failed = None if error.filename is None else Path(error.filename)
        if failed is not None and not failed.is_relative_to(place.parent) and not place.is_relative_to(failed):
            raise UserError(f"cannot read '{error.filename}': {error.strerror or error}") from None
        raise UserError(f"cannot write the cache '{place}': {error.strerror or error}") from None
    if found is None:
        raise UserError(f"the cache '{place}' cannot be read after it was written; delete it and try again")
    return found


def stored_shape(place: Path) -> tuple[int, ...] | None:
    """The shape `[n, ...]` of the inputs in the folder `place`; None if it has none. Only the meta data are read."""
    try:
        return tuple(read_checked_json(place / META, "it is not used")["shape"])
    except (OSError, ValueError, KeyError, TypeError, UserError):  # missing, or damaged
        return None


def is_cached(place: Path, key: Mapping[str, Any]) -> bool:
    """Whether the folder `place` has cached samples that were built for this key."""
    return _read(place, _digest(key)) is not None


def _digest(key: Mapping[str, Any]) -> str:
    """The hash of a key. A key lists every file of a source, which can be many."""
    return short_hash(json.dumps({"format": FORMAT, **key}, sort_keys=True), digits=64)


def _intact(place: Path, key: str) -> Cached | None:
    """As `_read`; None, too, if the content does not match its hash. It is read once per process and state."""
    found = _read(place, key)
    if found is None or found.samples.images.nbytes > READ_BYTES:
        return found
    state = (place.absolute(), str(_files(place)))
    if state not in _INTACT:
        if not found.samples.is_intact():
            return None
        _INTACT.add(state)
    return found


def _all(
    read: Callable[[Path, str], Cached | None], place: Path, key: str, parts: Iterable[str]
) -> dict[str, Cached] | None:
    """What `_intact` or `_read` finds of each part; None if one is missing."""
    found = {name: read(place / name, key) for name in parts}
    whole = {name: part for name, part in found.items() if part is not None}
    return whole if len(whole) == len(found) else None


def _read(place: Path, key: str) -> Cached | None:
    """The cached samples for this key; None if files are missing or have other sizes or times. Pixels are not read."""
    try:
        meta = read_checked_json(place / META, "it is not used")
        if meta["key"] != key or meta["files"] != _files(place):
            return None
        dtype = meta.get("dtype", "uint8")
        images = np.memmap(place / FORMATS[dtype][0], dtype, "r", shape=tuple(meta["shape"]))
        labels, groups, names = (_optional(place / f"{name}.npy") for name in ("labels", "groups", "names"))
        if labels is None:
            return None
        maps = None
        if (place / MAPS).exists():
            maps = np.memmap(place / MAPS, np.uint8, "r", shape=(len(images), *images.shape[2:]))
        samples = Samples(images, labels, groups, names, meta["hash"], maps=maps)
        return Cached(samples, tuple(meta["mean"]), tuple(meta["std"]))
    except (OSError, ValueError, KeyError, TypeError, UserError):  # missing, or damaged
        return None


def _files(place: Path) -> list[list[Any]]:
    """Name, size and time of change of the arrays. If another program writes to one, they are built again."""
    arrays = sorted(file for file in place.iterdir() if file.name != META)
    return [list(row) for row in signature(arrays, place)]


def _optional(file: Path) -> NDArray[Any] | None:
    return np.load(file, allow_pickle=False) if file.exists() else None


def _build(place: Path, key: str, classes: int | None, parts: Mapping[str, Callable[[], Iterable[Samples]]]) -> None:
    for abandoned in place.parent.glob(f".{place.name}.*.tmp"):  # left by killed processes; this process has the lock
        shutil.rmtree(abandoned)
    work = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
    work.mkdir()
    try:
        for name, chunks in parts.items():
            (work / name).mkdir(exist_ok=True)
            _write(work / name, "-".join(filter(None, (place.name, name))), key, classes, chunks())
        if place.exists():  # built for another key; processes that have it mapped can still read it
            outdated = work.with_name(f".{place.name}.outdated.tmp")
            place.rename(outdated)
            shutil.rmtree(outdated)
        work.rename(place)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write(work: Path, name: str, key: str, classes: int | None, chunks: Iterable[Samples]) -> None:
    digest, pixels = ShortHash(), PixelSums()
    shape: tuple[int, ...] = ()
    dtype: np.dtype[Any] = np.dtype(np.uint8)
    count = 0
    columns: dict[str, list[NDArray[Any]]] = {"labels": [], "groups": [], "names": []}
    temporary = work / "images"
    with temporary.open("wb") as file, _OptionalFile(work / MAPS) as maps:
        for chunk in chunks:
            if not count:
                shape, dtype = chunk.images.shape[1:], chunk.images.dtype
                log.info("decoding %s", name)
            elif chunk.images.shape[1:] != shape:
                raise UserError(f"images of {name} differ in size: {chunk.images.shape[1:]} after {shape}")
            _check(chunk, classes, name)
            images: NDArray[Any] = np.ascontiguousarray(chunk.images)
            file.write(images.data)
            digest.add(images.data)
            if dtype == np.uint8:
                pixels.add(images)
            if chunk.maps is not None:
                maps.write(chunk.maps)
            count += len(chunk)
            for column, parts in columns.items():
                if (values := getattr(chunk, column)) is not None:
                    parts.append(values)
        file.flush()
        os.fsync(file.fileno())  # pixels before the rename: a crash must not leave a file of zeros
    if not count:
        raise UserError(f"{name} holds no images")
    temporary.rename(work / FORMATS[dtype.name][0])
    digest.add(str((count, *shape)))
    for column, parts in columns.items():
        if parts:
            values = np.concatenate(parts)
            np.save(work / f"{column}.npy", values, allow_pickle=False)
            if column != "names":
                digest.add(np.ascontiguousarray(values).data)
                digest.add(str(values.shape))
    if maps.is_written:
        shape_of_maps = (count, *shape[1:])
        digest.add(np.memmap(work / MAPS, np.uint8, "r", shape=shape_of_maps).data)
        digest.add(str(shape_of_maps))
    mean, std = pixels.moments() if dtype == np.uint8 else ([0.0], [1.0])
    meta = {
        "key": key,
        "shape": [count, *shape],
        "dtype": dtype.name,
        "hash": digest.text(),
        "mean": mean,
        "std": std,
        "files": _files(work),
    }
    write_checked_json(work / META, meta)


class _OptionalFile:
    """A file that exists only if something is written to it; at the end of the block it is on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> "_OptionalFile":
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())

    @property
    def is_written(self) -> bool:
        """Whether the file exists."""
        return self._file is not None

    def write(self, values: NDArray[np.uint8]) -> None:
        """Append these bytes."""
        if self._file is None:
            self._file = self._path.open("wb")
        self._file.write(np.ascontiguousarray(values).data)


def _check(chunk: Samples, classes: int | None, name: str) -> None:
    if len(chunk.images) != len(chunk.labels):
        raise UserError(f"{name} has {len(chunk.images)} images, but {len(chunk.labels)} labels")
    if chunk.maps is not None:
        _check_maps(chunk, chunk.maps, classes, name)
    if classes is None:
        return
    wrong = np.flatnonzero((chunk.labels < 0) | (chunk.labels >= classes))
    if wrong.size:
        raise UserError(f"{name} has the label {chunk.labels[wrong[0]]} (allowed: 0 to {classes - 1})")


def _check_maps(chunk: Samples, maps: NDArray[np.uint8], classes: int | None, name: str) -> None:
    if maps.shape != (len(chunk), *chunk.images.shape[2:]):
        raise UserError(f"{name} has label maps of the shape {maps.shape} for images of the shape {chunk.images.shape}")
    largest = int(np.max(maps, where=maps != UNLABELLED, initial=0))
    if classes is not None and largest >= classes:
        raise UserError(f"{name} has pixels with the label {largest} (allowed: 0 to {classes - 1}, and {UNLABELLED})")
