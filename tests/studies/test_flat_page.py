"""The page of a benchmark of flatness, from a real search: what is stored for it, and what it shows so far."""

from pathlib import Path

import pytest

from fedflat.analysis.comparison.flat.search import load_search
from fedflat.bench.tuning.protocol.reading import SearchedGrid
from fedflat.bench.tuning.protocol.units import Units
from studies.flat.parts import PARTS
from studies.flat.stored import StoredSearchOfPage
from studies.flat.winners import winners
from tests.analysis.comparison.tiny_search import store_one_pair
from tests.bench.tuning import tiny_protocol as tiny


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_one_pair(tmp_path_factory.mktemp("flat"))


@pytest.fixture
def searched(finished: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of the protocol of a finished search, in whose folder the test works."""
    monkeypatch.chdir(finished)
    return "grid/search.yaml"


def test_the_runs_of_a_search_are_read_by_kind(searched: str) -> None:
    stored = StoredSearchOfPage(searched)
    assert set(stored.crossed["seed"]) == {0, 1, 2, 3}
    assert {name: set(units["method"]) for name, units in stored.equal_compute.items()} == {
        "k2": {"fedavg"},
        "t2": {"fedavg"},
    }
    assert stored.references["method"].tolist() == ["fedsam", "fedsam"]
    assert stored.contrasts["noise"]["train_true_accuracy"].notna().all()


def test_the_stored_trials_have_the_winners_of_the_search(searched: str) -> None:
    trials = load_search("tiny")
    assert trials is not None
    units = Units(SearchedGrid.read(searched), Path("results"))
    won = winners(trials).set_index(["method", "tuning_seed"])["number"]
    assert won.to_dict() == {
        (method, seed): units.of("main", method, seed).winner.number
        for method in ("fedavg", "fedsam")
        for seed in (1000, 1001)
    }


def test_with_two_tuning_seeds_the_page_has_numbers_and_no_verdict(searched: str) -> None:
    parts = {name: made(searched) for name, made in PARTS.items()}
    text = {name: part.markdown("images") for name, part in parts.items()}
    assert "1 of 1 pairs have results so far, with 2 of 2 tuning seeds; without 6 of them" in text["primary"]
    assert "| FedSAM − FedAvg | 2 |" in text["primary"]
    assert [name for name in text if "**" in text[name]] == []
    assert "no rate of wrong verdicts" in text["against_itself"]
    assert "4 searches have ended, with 48 trials" in text["search"]
    assert parts["primary"].figures


def test_a_page_without_stored_results_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tiny.write(tmp_path / "empty")
    monkeypatch.chdir(tmp_path)
    assert {name: len(made(str(file)).tables) for name, made in PARTS.items()} == dict.fromkeys(PARTS, 0)
