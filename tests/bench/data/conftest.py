"""Tiny copies of data sets of image files, each written once for a file of tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.data import image_copies, scene_copies

WRITERS: dict[str, Callable[[Path], None]] = image_copies.WRITERS | scene_copies.WRITERS


@pytest.fixture(scope="module")
def image_roots(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A data root with a copy of a data set, which is written once; tests that change it copy it."""
    written: dict[str, Path] = {}

    def root(name: str) -> Path:
        if name not in written:
            written[name] = tmp_path_factory.mktemp(name)
            WRITERS[name](written[name])
        return written[name]

    return root
