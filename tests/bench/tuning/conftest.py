"""The folder of data sets of tests that generate signals."""

from collections.abc import Iterator

import pytest

from fedflat.bench.data.root import ENVIRONMENT


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The signals are generated once for a module, into a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT, str(tmp_path_factory.mktemp("data")))
        yield
