"""Only `make test-all` runs the tests of studies, which only maintainers run."""

from pathlib import Path

import pytest

from fedflat.bench import metrics
from tests.tiers import thorough


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, before those that have the mark are left out."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(thorough)


@pytest.fixture(autouse=True)
def _no_metrics_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process have read users' metrics, whose columns would be in the frames of stored figures."""
    monkeypatch.setattr(metrics, "_OF_USERS", {})
