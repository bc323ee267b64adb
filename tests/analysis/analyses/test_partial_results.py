"""Parts of a computation that was killed: all whole ones come back to the last bit, none of another question."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedflat.analysis.analyses.partial_results import PartialResults
from fedflat.bench.input.errors import UserError

KEY = {"options": {"points": 3}, "run": "abc"}
RESULTS = [[[0.1 + 0.2, float("inf")]], [[1e-300, -0.0], [5.0, 2.0**-40]], [[1 / 3, 100.0]]]


@settings(deadline=None)
@given(cut=st.integers(0, 400), rubbish=st.binary(max_size=9))
def test_whatever_a_kill_leaves_is_continued(cut: int, rubbish: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "deep" / "file"
        first = PartialResults(file, KEY)
        for result in RESULTS:
            first.add(result)
        whole = file.read_bytes()
        file.write_bytes(whole[:cut] + rubbish)
        second = PartialResults(file, KEY)
        done = len(second.finished)
        assert second.finished == RESULTS[:done]
        lost = whole[: min(cut, len(whole))].count(b"\n") - 1 - done
        assert lost <= 0 or rubbish, "a line that is whole is not lost"
        for result in RESULTS[done:]:
            second.add(result)
        assert file.read_bytes() == whole
        assert PartialResults(file, KEY).finished == RESULTS


@settings(deadline=None)
@given(line=st.integers(1, 3), at=st.integers(0, 200), bit=st.integers(0, 7))
def test_a_flipped_bit_is_never_a_result(line: int, at: int, bit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        saved = PartialResults(file, KEY)
        for result in RESULTS:
            saved.add(result)
        lines = file.read_bytes().splitlines(keepends=True)
        damaged = bytearray(lines[line])
        damaged[at % len(damaged)] ^= 1 << bit
        file.write_bytes(b"".join([*lines[:line], damaged, *lines[line + 1 :]]))
        finished = PartialResults(file, KEY).finished
        assert finished == RESULTS[: len(finished)]
        assert len(finished) >= line - 1


def test_parts_of_another_question_are_not_taken(tmp_path: Path) -> None:
    PartialResults(tmp_path / "file", KEY).add(RESULTS[0])
    assert PartialResults(tmp_path / "file", {**KEY, "run": "other"}).finished == []
    assert PartialResults(tmp_path / "file", KEY).finished == [], "the other question's file has taken its place"


def test_a_second_process_on_the_same_file_does_no_harm(tmp_path: Path) -> None:
    one, two = (PartialResults(tmp_path / "file", KEY) for _ in range(2))
    one.add(RESULTS[0])
    two.add(RESULTS[0])
    two.add(RESULTS[1])
    one.add(RESULTS[1])
    one.add(RESULTS[2])
    assert PartialResults(tmp_path / "file", KEY).finished == RESULTS


def test_nothing_is_stored_without_a_file() -> None:
    saved = PartialResults(None, KEY)
    saved.add(RESULTS[0])
    assert saved.finished == RESULTS[:1]


def test_a_place_that_refuses_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        PartialResults(tmp_path / "file", KEY)
