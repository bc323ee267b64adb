"""Image files of any size and colour mode, decoded by several threads to RGB images of one size.

Pillow decodes: torchvision's decoders are compiled operators, which do not load together with every build of torch.
"""

import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedflat.bench.data.cache import Cached, cached, signature
from fedflat.bench.data.dataset import Labels, Samples
from fedflat.bench.host.progress import Timer
from fedflat.bench.host.threads import available_cores
from fedflat.bench.input.errors import UserError, first_few

if TYPE_CHECKING:
    from PIL.Image import Image as ImageFile

log = logging.getLogger("fedflat.data")

VERSION = 1
"""Increase it whenever a change of `decode` changes pixels, so that the cache does not keep the old ones."""

CHUNK_BYTES = 32 << 20
"""Bytes of the decoded images that are written together."""

AHEAD = 8
"""How many images are decoded ahead for each thread."""

REPORT_SECONDS = 30.0
"""Minimum time between two reports."""

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet's images, by which the inputs of pre-trained models are normalised."""

Side = Annotated[int, Field(ge=8, le=1024)]
"""Height and width of stored images, in pixels."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class ImageFiles:
    """Image files with labels `[n]` and, if there are any, groups `[n]`; `names` are those of the images.

    `lists`: further files on which labels or groups depend.
    """

    files: Sequence[Path]
    labels: Labels
    names: Sequence[str]
    groups: Labels | None = None
    lists: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return len(self.files)

    def key(self, base: Path, size: int | None, key: Mapping[str, Any]) -> dict[str, Any]:
        """The `key` and all else on which the decoded images depend, such as the files below `base`.

        Raises `UserError` if a file is missing. No image is read.
        """
        return {**key, "version": VERSION, **({} if size is None else {"size": size}), "files": self._signature(base)}

    def stored(self, place: Path, size: int | None, classes: int, key: Mapping[str, Any]) -> Cached:
        """The images in the cache, decoded again if the `key` has changed. Raises `UserError` as `decoded`."""
        return cached(place, key, classes, lambda: self.decoded(size))

    def decoded(self, size: int | None) -> Iterator[Samples]:
        """All images in chunks, in their order: see `decode`. `size` None: all images must have the same size.

        Raises `UserError` for an unreadable file, or an image of another size.
        """
        shape = tuple[int, ...]()
        for part, images in in_parts(lambda file: decode(file, size), self.files, lambda image: image.nbytes):
            for file, image in zip(self.files[part], images, strict=True):
                shape = shape or image.shape
                if image.shape != shape:
                    raise UserError(
                        f"'{file}' has {in_pixels(image.shape)}, but the images before it have {in_pixels(shape)} (all "
                        "must have one size, unless the data set has the key size, such as size: 224)"
                    )
            groups = None if self.groups is None else self.groups[part]
            yield Samples(np.stack(images), self.labels[part], groups, np.array(self.names[part]))

    def require(self) -> None:
        """Raises `UserError` if files are missing, or are no files: those of a list may be."""
        absent = [file for file in dict.fromkeys(self.files) if not file.is_file()]
        if not absent:
            return
        first = _fault(absent[0])
        more = sum(_fault(file) == first for file in absent) - 1
        others = "" if not more else ", and so is 1 other" if more == 1 else f", and so are {more:,} others"
        listed = f"; listed in {first_few([file.name for file in self.lists])}" if self.lists else ""
        raise UserError(f"'{absent[0]}' {first}{others}{listed}")

    def shape(self, size: int | None) -> tuple[int, ...]:
        """The shape of a decoded image; without `size` that of the first file, of which no pixel is decoded."""
        if size is not None:
            return 3, size, size
        with opened(self.files[0]) as image:
            return 3, image.height, image.width

    def _signature(self, base: Path) -> list[tuple[str, int, int]]:
        try:
            return signature([*self.files, *self.lists], base)
        except FileNotFoundError:
            self.require()
            raise


def _fault(file: Path) -> str:
    """Why a path is no file."""
    if file.is_dir():
        return "is a folder, not an image file"
    return "is a link to a file that does not exist" if file.is_symlink() else "is missing"


def decode(file: Path, size: int | None = None) -> NDArray[np.uint8]:
    """An image file as RGB `[3, height, width]`: grey, palette and CMYK are converted, transparency is dropped.

    With a `size`, the centred square whose side is the shorter side of the image is scaled to `size` × `size`
    (bilinear, with antialiasing). A JPEG whose sides are at least 4, 8 or 16 times this size is decoded at a half, a
    quarter or an eighth of its size, which leaves at least twice this size. Raises `UserError` if the file cannot be
    read.
    """
    from PIL import Image, ImageOps  # noqa: PLC0415 - only where image files are read

    with opened(file) as image:
        if size is not None:
            image.draft(None, (2 * size, 2 * size))
        whole = image.convert("RGBA") if image.mode == "P" else image  # Pillow warns of transparency otherwise
        rgb = whole.convert("RGB")
        if size is not None:
            rgb = ImageOps.fit(rgb, (size, size), Image.Resampling.BILINEAR)
        return np.asarray(rgb, dtype=np.uint8).transpose(2, 0, 1)


def in_pixels(shape: Sequence[int]) -> str:
    """The height and width of images of this shape in words, such as 12×35 pixels."""
    height, width = shape[-2:]
    return f"{height}×{width} pixels"


@contextmanager
def opened(file: Path) -> Iterator["ImageFile"]:
    """An image file, which is decoded in the block. Raises `UserError` if it is unreadable, or has more than 8 bits.

    The system's reason, such as a lack of permission, is kept: the file itself may be in order.
    """
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - only where image files are read

    try:
        with Image.open(file) as image:
            if image.mode.startswith(("I", "F")):  # Pillow would clip their values at 255
                raise UserError(f"'{file}' has more than 8 bits per channel (mode {image.mode}); convert it")
            yield image
    except UserError:  # a ValueError, too
        raise
    except Image.DecompressionBombError as error:
        raise UserError(f"'{file}' has too many pixels: {error}") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        if isinstance(error, OSError) and error.errno is not None:  # Pillow's own errors have no number
            raise UserError(f"cannot read '{file}': {error.strerror}") from None
        # Damaged files raise all of these, for example SyntaxError if they are PNG.
        raise UserError(f"'{file}' is not a readable image; repair it or remove it from the folder") from None


def in_parts(
    function: Callable[[T], R], items: Sequence[T], size: Callable[[R], int]
) -> Iterator[tuple[slice, list[R]]]:
    """The results of a function for all items, computed in the background, in lists of at least `CHUNK_BYTES` bytes.

    Each list has the positions of its items. `size`: the bytes of a result, which is the same for all.
    """
    started, reports, done, results = time.perf_counter(), Timer(REPORT_SECONDS), 0, list[R]()
    for k, result in enumerate(in_background(function, items), start=1):
        results.append(result)
        if k == len(items) or len(results) * size(result) >= CHUNK_BYTES:
            yield slice(done, k), results
            done, results = k, []
        if reports.is_due():
            left = (time.perf_counter() - started) / k * (len(items) - k) / 60
            log.info("decoded %s of %s images, about %.0f min left", f"{k:,}", f"{len(items):,}", left)


def in_background(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The results of a function for all items, in their order, computed by as many threads as there are cores.

    At most `AHEAD` results per thread are computed before they are requested, so that memory is bounded.
    """
    threads = available_cores()
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="decoding")
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
