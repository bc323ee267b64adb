"""Files are complete or absent, and what the file system refuses is reported in one line."""

import multiprocessing
import time
from pathlib import Path

import pytest

from fedflat.bench.files.atomic import replacing, write_text
from fedflat.bench.input.errors import UserError


def test_replaces_the_old_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.txt"
    write_text(target, "old\n")
    write_text(target, "α\r\n")
    assert target.read_bytes() == "α\r\n".encode()
    assert list(target.parent.iterdir()) == [target]


def test_failure_keeps_the_old_file_and_removes_the_temporary_one(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    write_text(target, "old")
    with pytest.raises(ZeroDivisionError), replacing(target) as temporary:
        temporary.write_text("half", encoding="utf-8")
        raise ZeroDivisionError
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_target_does_not_exist_before_the_end(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    with replacing(target) as temporary:
        temporary.write_text("new", encoding="utf-8")
        assert temporary.parent == tmp_path
        assert not target.exists()
    assert target.read_text(encoding="utf-8") == "new"


def test_unwritable_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    # Not by mode bits: the superuser may write anywhere.
    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(UserError, match=r"^cannot write '.*file\.txt': Permission denied$"):
        write_text(tmp_path / "file.txt", "")


def test_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match=r"^cannot write '.*': (Not a directory|File exists)$"):
        write_text(tmp_path / "folder" / "file.txt", "")


def test_full_disk_is_one_line_and_foreign_errors_pass(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    with pytest.raises(UserError, match="No space left"), replacing(target):
        raise OSError(28, "No space left on device")
    with pytest.raises(FileNotFoundError), replacing(target):
        (tmp_path / "absent.csv").read_text(encoding="utf-8")
    assert not any(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_but_has_the_content_is_no_error(tmp_path: Path, monkeypatch) -> None:
    write_text(tmp_path / "file.txt", "same")

    def refuse(path: Path, *_: object) -> int:
        raise OSError(30, "Read-only file system", str(path))

    with monkeypatch.context() as patch:  # not by a mount, which only the superuser may do
        patch.setattr("os.open", refuse)
        patch.setattr(Path, "unlink", refuse)
        write_text(tmp_path / "file.txt", "same")
        with pytest.raises(UserError, match="Read-only file system"):
            write_text(tmp_path / "file.txt", "other")
    assert (tmp_path / "file.txt").read_text(encoding="utf-8") == "same"


def test_what_a_killed_process_was_writing_is_removed_by_the_next_one(tmp_path: Path, caplog) -> None:
    """Not the files of living processes, nor those of other targets."""
    target = tmp_path / "file.txt"
    writing = multiprocessing.get_context("fork").Process(target=_write_and_wait, args=(target,))
    writing.start()
    while not any(file.read_bytes() == b"half" for file in tmp_path.iterdir()):
        time.sleep(0.01)
    [stale] = tmp_path.iterdir()
    other = tmp_path / ".file.txt.md.00000000.tmp"
    other.write_bytes(b"")
    caplog.set_level("INFO", "fedflat.data")
    write_text(target, "one")
    assert stale.exists(), "its process is alive"
    writing.kill()
    writing.join()
    write_text(target, "two")
    assert set(tmp_path.iterdir()) == {target, other}
    assert caplog.messages == [f"removed '{stale}', left by a killed process"]


def _write_and_wait(target: Path) -> None:
    with replacing(target) as temporary:
        temporary.write_bytes(b"half")
        time.sleep(600)
