"""Parts of a computation that was killed: all whole ones come back to the last bit, none of another question."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.analyses.partial_results import KeptParts
from bench.input.errors import UserError

KEY = {"options": {"points": 3}, "run": "abc"}
PARTS = [[[0.1 + 0.2, float("inf")]], [[1e-300, -0.0], [5.0, 2.0**-40]], [[1 / 3, 100.0]]]


@given(cut=st.integers(0, 400), rubbish=st.binary(max_size=9))
def test_whatever_a_kill_leaves_is_continued(cut: int, rubbish: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "deep" / "file"
        first = KeptParts(file, KEY)
        for part in PARTS:
            first.add(part)
        whole = file.read_bytes()
        file.write_bytes(whole[:cut] + rubbish)
        second = KeptParts(file, KEY)
        done = len(second.parts)
        assert second.parts == PARTS[:done]
        lost = whole[: min(cut, len(whole))].count(b"\n") - 1 - done
        assert lost <= 0 or rubbish, "a line that is whole is not lost"
        for part in PARTS[done:]:
            second.add(part)
        assert file.read_bytes() == whole
        assert KeptParts(file, KEY).parts == PARTS


def test_parts_of_another_question_are_not_taken(tmp_path: Path) -> None:
    KeptParts(tmp_path / "file", KEY).add(PARTS[0])
    assert KeptParts(tmp_path / "file", {**KEY, "run": "other"}).parts == []
    assert KeptParts(tmp_path / "file", KEY).parts == [], "the other question's file has taken its place"


def test_a_second_process_on_the_same_file_does_no_harm(tmp_path: Path) -> None:
    one, two = (KeptParts(tmp_path / "file", KEY) for _ in range(2))
    one.add(PARTS[0])
    two.add(PARTS[0])
    two.add(PARTS[1])
    one.add(PARTS[1])
    one.add(PARTS[2])
    assert KeptParts(tmp_path / "file", KEY).parts == PARTS


def test_nothing_is_kept_nowhere() -> None:
    kept = KeptParts(None, KEY)
    kept.add(PARTS[0])
    assert kept.parts == PARTS[:1]


def test_a_place_that_refuses_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        KeptParts(tmp_path / "file", KEY)
