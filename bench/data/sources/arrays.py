"""User-defined arrays, from an npz file or from a Python function: samples of any shape with class labels."""

import functools
import shutil
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedflat.bench.code.opened_files import opened_files, state_of
from fedflat.bench.code.user_function import UserFunction
from fedflat.bench.data.cache import cached_together, in_chunks
from fedflat.bench.data.dataset import Dataset, Images, Samples, Subset
from fedflat.bench.data.moments import SCALE, PixelSums
from fedflat.bench.data.own_arrays import check_names, number_of_classes, samples
from fedflat.bench.data.sources.base import Source, cache_place
from fedflat.bench.files.csv_json import read_checked_json, write_checked_json
from fedflat.bench.files.locks import locked
from fedflat.bench.host.torchvision_compat import prepare_imports
from fedflat.bench.input.bounds import MOST
from fedflat.bench.input.content import LargeFile, short_hash, stem
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.field_words import FilledIn
from fedflat.bench.input.frozen import LABEL

Classes = Annotated[int, Field(ge=2, le=MOST)]
Arrays = dict[Subset, Samples]
SUBSETS: tuple[Subset, ...] = ("train", "test")


class OwnArrays(Source):
    """The common base class: x_train, y_train, x_test, y_test, and perhaps client_train, the client of each sample.

    uint8 inputs are normalised by mean and deviation of the training samples: per channel of `[n, channels, height,
    width]`, per feature of `[n, features]`, over all values of `[n, height, width]`. Floating-point inputs are used as
    they are, in float32, and other whole numbers, which are token ids, in int64. The identity of a run depends on the
    content that defines the arrays, not on its path.
    """

    title: str | None = Field(
        default=None, pattern=LABEL, description="the name in paths and tables; null: that of the file or function"
    )
    classes: Classes | None = Field(
        examples=[10], default=None, description="number of classes; null: the training samples have every class"
    )

    own: ClassVar[bool] = True
    version: ClassVar[int] = 2
    """Of the cached numbers, as for `Published`."""

    @abstractmethod
    def read(self) -> Arrays:
        """The checked training and test samples. Raises `UserError`."""

    @property
    @abstractmethod
    def content(self) -> str:
        """The hash of what defines the arrays."""

    @property
    @abstractmethod
    def what(self) -> str:
        """What holds the arrays, for messages."""

    @property
    def distinction(self) -> str:
        """What keeps the arrays apart from others in the cache."""
        return self.content

    def place(self, root: Path) -> Path:
        """The folder of the cached arrays below the root."""
        return cache_place(root, self.name, self.distinction)

    def load(self, root: Path) -> Dataset:
        """The arrays in a cache below the root. They are read once, and again after a change of their definition.

        Training and test samples are stored together, so that they always come from one reading: another call of a
        function may divide its samples differently.
        """
        return self._load(root, self.read)

    def _load(self, root: Path, read: Callable[[], Arrays]) -> Dataset:
        """As `load`, with what reads the arrays."""
        read = functools.cache(read)
        key = {"source": self.name, "version": self.version, "content": self.content}
        parts = {str(subset): functools.partial(_chunks, read, subset) for subset in SUBSETS}
        train, test = cached_together(self.place(root), key, None, parts).values()
        classes = number_of_classes(train.samples.labels, test.samples.labels, self.what, self.classes)
        return Dataset(self.label, train.samples, test.samples, classes, train.scale, train.mean, train.std)

    def check(self, root: Path) -> Iterator[str]:
        """Reads the arrays without storing them."""
        parts = self.read()
        number_of_classes(parts["train"].labels, parts["test"].labels, self.what, self.classes)
        for subset, part in parts.items():
            clients = "" if part.groups is None else f" of {part.groups.max() + 1} clients"
            kind = f"{part.images.dtype} of the shape {part.images.shape[1:]}"
            x = part.images
            values = f"{x.min():g} to {x.max():g}, mean {x.mean(dtype=np.float64):.4g}"
            yield f"{self.label} {subset}: {len(part):,} samples{clients}, {kind}, {values}, ok"
        yield f"{self.label}: {_normalisation(parts['train'].images)}"


def _normalisation(x: Images) -> str:
    """What happens to inputs, of which x `[n, ...]` are the training ones, in words."""
    if x.dtype == np.int32:
        return "inputs are token ids: nothing normalises them"
    if x.dtype != np.uint8:
        return f"inputs are used as they are, in {x.dtype}: nothing normalises them"
    sums = PixelSums()
    sums.add(np.asarray(x, np.uint8))
    places = "over all values" if x.ndim == 3 else "of each feature" if x.ndim == 2 else "of each channel"
    mean, std = (_range_of(values) for values in sums.moments())
    return f"inputs become (x / {SCALE:g} - mean) / deviation {places}: mean {mean}, deviation {std}"


def _range_of(values: Sequence[float]) -> str:
    least, most = f"{min(values):.4g}", f"{max(values):.4g}"
    return least if least == most else f"{least} to {most}"


def _chunks(read: Callable[[], Arrays], subset: Subset) -> Iterator[Samples]:
    yield from in_chunks(read()[subset])


class ArrayFile(LargeFile, OwnArrays):
    """An npz file with these arrays, as `numpy.savez` writes it. It must not contain pickled objects."""

    name: Literal["arrays"] = "arrays"
    kind: ClassVar[str] = "array file"

    @property
    def label(self) -> str:
        """The title, or the name of the file without its ending."""
        return self.title or stem(self.file) or "arrays"

    @property
    def content(self) -> str:
        """The hash of the file."""
        return str(self.hash)

    @classmethod
    def overview(cls, root: Path) -> tuple[str, ...]:
        """Texts for a list."""
        return ("yours", "yours", "yours", "", "", "yours", "an npz file with x_train, y_train, x_test, y_test")

    def read(self) -> Arrays:
        """The file's arrays."""
        what = self.what
        self.unchanged()
        if not zipfile.is_zipfile(self.file):
            raise UserError(f"{what} is no npz file (allowed: a file as numpy.savez writes it)")
        try:
            with np.load(self.file, allow_pickle=False) as stored:
                check_names(stored.files, what)
                arrays = {name: _stored(stored, name, what) for name in stored.files}
        except (OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
            raise UserError(f"{what} is damaged or too large ({' '.join(str(error).split())})") from None
        return samples(arrays, what)


def _path_hash(file: Path) -> str:
    return short_hash(str(file.resolve()))


def _stored(stored: Any, name: str, what: str) -> Any:
    """An array of a file; NumPy raises a ValueError if it would have to unpickle it, or if its header is wrong."""
    try:
        return stored[name]
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise UserError(f"{what}: {name} is an array of Python objects, which is never read") from None
        raise UserError(f"{what}: {name} cannot be read ({' '.join(str(error).split())})") from None


class InputFile(LargeFile):
    """A file that a function reads."""

    kind: ClassVar[str] = "input file"


class ArrayFunction(OwnArrays, UserFunction):
    """A function without arguments that returns a mapping with these arrays.

    It is called once. Its values are stored in the cache, and belong to its file, by path and code. It is called again
    if one of the files has changed that Python opened during the call (see `opened_files`). These count in the data's
    hash, as the images of a folder do; the files that are listed in `files` count in the identity, too.
    """

    in_words: ClassVar[str] = "a user-defined data set"
    noun: ClassVar[str] = "data set"

    name: Literal["function"] = "function"
    function: str = Field(description="called without arguments")
    files: tuple[InputFile, ...] | None = Field(
        default=None,
        description="files that a library opens without Python, such as Parquet and HDF5, by their paths from the "
        "folder of the function's file, such as [rows.parquet]; null: none",
    )
    path_hash: Annotated[str | None, FilledIn()] = Field(
        default=None, description="hash of the file's path, which a run keeps; filled in"
    )

    @classmethod
    def is_in(cls, fields: Mapping[str, Any]) -> bool:
        """The file of a data set alone may be one of arrays."""
        return super().is_in({**fields, "file": None})

    @classmethod
    def with_path(cls, data: dict[str, Any], file: Path) -> dict[str, Any]:
        """With the hash of the path, unless the file is a run's copy, which has that of the original."""
        listed = data.get("files")
        if isinstance(listed, list | tuple):
            own = [{"file": file.parent / given} if isinstance(given, str | Path) else given for given in listed]
            data = {**data, "files": own}
        return {**data, "path_hash": data.get("path_hash") or _path_hash(file)}

    @property
    def label(self) -> str:
        """The title, or the name of the function."""
        return self.title or self.function

    @property
    def content(self) -> str:
        """The hash of the code, of the function's name, and of the listed files."""
        return short_hash(f"{self.code}:{self.function}", *(str(one.hash) for one in self.files or ()))

    @property
    def distinction(self) -> str:
        """The content, and the path: the function may read files next to its own."""
        return f"{self.content}:{self.path_hash}"

    @property
    def what(self) -> str:
        """The function's result."""
        return f"'{self.function}' of the {self.kind_of_file()} '{self.file}'"

    @classmethod
    def overview(cls, root: Path) -> tuple[str, ...]:
        """Texts for a list."""
        return ("yours", "yours", "yours", "", "", "yours", "mine.py:function, which returns x_train, y_train, ...")

    def read(self) -> Arrays:
        """The arrays that the function returns."""

        def checked(given: Any) -> Arrays:
            if not isinstance(given, Mapping):
                raise UserError(f"the result is {type(given).__name__} (allowed: a dictionary of arrays)")
            return samples(given, "the result")

        for one in self.files or ():
            one.unchanged()
        prepare_imports(self.source())
        return self.call(then=checked)

    def load(self, root: Path) -> Dataset:
        """As for arrays; the function is called again if a file that it read has changed."""
        place = self.place(root)
        record = place.with_name(f"{place.name}.files.json")
        read = functools.partial(self._recorded, record)
        if not self._is_current(record):
            try:
                with locked(record):
                    if not self._is_current(record):
                        shutil.rmtree(place, ignore_errors=True)
                        return self._load(root, read)
            except OSError as error:
                raise UserError(f"cannot write the cache '{place}': {error.strerror or error}") from None
        return self._load(root, read)

    def _recorded(self, record: Path) -> Arrays:
        """The arrays; the state of the files that were read for them is recorded."""
        with opened_files() as opened:
            arrays = self.read()
        write_checked_json(record, {"files": opened})
        return arrays

    def _is_current(self, record: Path) -> bool:
        """Whether no file that still exists has changed since it was read. A run's copy of the function is not called
        only because an earlier version left no record."""
        try:
            read = read_checked_json(record, "it is not used")["files"]
            return all(state_of(file) in (None, state) for file, state in read.items())
        except (OSError, ValueError, KeyError, AttributeError, UserError):
            return self.file is None or _path_hash(self.file) != self.path_hash

    def prepare(self, root: Path, *, fetch: bool) -> Dataset:
        """Calls the function again: it may read what is no file."""
        shutil.rmtree(self.place(root), ignore_errors=True)
        return super().prepare(root, fetch=fetch)
