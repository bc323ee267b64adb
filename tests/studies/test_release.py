"""A release has one version everywhere."""

import pytest

from fedflat.bench import __version__
from fedflat.bench.input.errors import UserError
from studies.release import main, mistakes


def test_the_changelog_and_the_citation_have_the_version_of_the_package() -> None:
    assert list(mistakes(f"v{__version__}")) == []


def test_each_mistake_of_a_release_is_said_in_one_line() -> None:
    found = list(mistakes("1.2.3", "1.2.3"))
    assert [words.partition(" (allowed: ")[2] for words in found] == ["v1.2.3)", "1.2.3)", "1.2.3)"]
    with pytest.raises(UserError, match=r"^the tag is 'v0.0.0' \(allowed: v\d+\.\d+\.\d+\)$"):
        main("v0.0.0")
