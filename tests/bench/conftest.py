"""What tests of downloads share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.file_server import served


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address at which its files are served."""
    folder = tmp_path / "store"
    folder.mkdir()
    with served(folder) as address:
        yield folder, address
