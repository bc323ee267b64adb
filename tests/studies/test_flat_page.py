"""The page of a benchmark of flatness, from a real search: what it shows so far."""

from pathlib import Path

import pytest

from studies.flat.parts import PARTS
from tests.analysis.comparison.tiny_search import store_one_pair
from tests.bench.tuning import tiny_protocol as tiny


def test_with_two_tuning_seeds_the_page_has_numbers_and_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store_one_pair(tmp_path)
    parts = {name: made("grid/search.yaml") for name, made in PARTS.items()}
    text = {name: part.markdown("images") for name, part in parts.items()}
    assert "1 of 1 pairs have results so far, with 2 of 2 tuning seeds; without 6 of them" in text["primary"]
    assert "| FedSAM − FedAvg | 2 |" in text["primary"]
    assert [name for name in text if "**" in text[name]] == []
    assert "no rate of wrong verdicts" in text["against_itself"]
    assert "4 searches have ended, with 36 trials" in text["search"]
    assert parts["primary"].figures


def test_a_page_without_stored_results_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tiny.write(tmp_path / "empty")
    monkeypatch.chdir(tmp_path)
    assert {name: len(made(str(file)).tables) for name, made in PARTS.items()} == dict.fromkeys(PARTS, 0)
