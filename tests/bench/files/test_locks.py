"""Locks of folders between processes."""

import errno
import fcntl
import functools
import multiprocessing
import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedflat.bench.files.locks import folder_lock, lock_file, waiting_lock

FORK = multiprocessing.get_context("fork")


def test_a_folder_is_locked_for_other_processes_until_the_block_ends(tmp_path: Path) -> None:
    """Both processes have a descriptor of their own, as two machines have; nothing remains."""
    folder = tmp_path / "run"
    with folder_lock(folder) as held, folder_lock(folder) as also:
        assert (held, also) == (True, False)
        assert [file.name for file in tmp_path.iterdir()] == [".run.lock"]
    assert not any(tmp_path.iterdir())
    with folder_lock(folder) as held:
        assert held


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    holder = FORK.Process(target=_hold, args=(tmp_path / "run",))
    holder.start()
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    with folder_lock(tmp_path / "run") as held:
        assert not held
    holder.kill()
    holder.join()
    with folder_lock(tmp_path / "run") as held:
        assert held


def _hold(folder: Path) -> None:
    with folder_lock(folder) as held:
        assert held
        folder.with_name("held").touch()
        time.sleep(600)


def test_a_lock_file_that_was_removed_before_it_was_locked_is_no_lock(tmp_path: Path, monkeypatch) -> None:
    """The process that held it removes it between the two steps of another one, which must not lock that file."""
    opened = os.open

    def slow_open(path: str | Path, *arguments: int) -> int:
        descriptor = opened(path, *arguments)
        if Path(path) == tmp_path / ".run.lock":
            monkeypatch.undo()
            Path(path).unlink()
        return descriptor

    monkeypatch.setattr("os.open", slow_open)
    with folder_lock(tmp_path / "run") as held, folder_lock(tmp_path / "run") as also:
        assert (held, also) == (True, False)


def test_many_processes_never_hold_a_lock_at_the_same_time(tmp_path: Path) -> None:
    processes = [FORK.Process(target=_append_alone, args=(tmp_path,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert not (tmp_path / ".run.lock").exists()


def _append_alone(folder: Path) -> None:
    """Take the lock a hundred times; alone, the file `alone` can always be created anew."""
    done = 0
    while done < 100:
        with folder_lock(folder / "run") as held:
            if held:
                os.close(os.open(folder / "alone", os.O_CREAT | os.O_EXCL))
                (folder / "alone").unlink()
                done += 1


def test_a_file_system_without_locks_is_an_error_without_a_file_name(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(OSError, match="not implemented") as error, folder_lock(tmp_path / "run"):
        pass
    assert error.value.filename is None


def test_a_lock_file_that_another_machine_removes_is_made_anew(tmp_path: Path, monkeypatch) -> None:
    """With NFS, the open file is then stale, when it is locked or afterwards."""
    stale = [False, True, False, True]
    called = {"fcntl.flock": fcntl.flock, "os.fstat": os.fstat}

    def of_nfs(name: str, *arguments: object) -> object:
        if stale and stale.pop():
            (tmp_path / ".run.lock").unlink()
            raise OSError(errno.ESTALE, "Stale file handle")
        return called[name](*arguments)

    for name in called:
        monkeypatch.setattr(name, functools.partial(of_nfs, name))
    with folder_lock(tmp_path / "run") as held, folder_lock(tmp_path / "run") as also:
        assert (held, also) == (True, False)
    assert stale == []
    assert not any(tmp_path.iterdir())


def test_who_waits_gets_the_lock_although_the_folder_was_removed(tmp_path: Path) -> None:
    place = tmp_path / "cell" / "seed-0"

    def remove() -> None:
        holder.close()
        place.parent.rmdir()

    place.parent.mkdir()
    holder = ExitStack()
    assert holder.enter_context(folder_lock(place))
    with waiting_lock(place, remove):
        assert lock_file(place).exists()
    assert list(place.parent.iterdir()) == []
