"""Tables with a checksum next to them: what pandas reads, damages, kills, and files of earlier versions."""

import subprocess
from pathlib import Path

import pandas as pd
import pytest

from fedflat.bench.files import csv_json
from fedflat.bench.files.checksums import UNCHECKED, DamagedFileError
from fedflat.bench.files.csv_json import read_checked_csv, sum_file, write_checked_csv
from fedflat.bench.files.lists import read_list, write_list
from fedflat.bench.input.errors import UserError
from tests.full_disk import full_disk
from tests.tables import without_checksum

OLD, NEW = pd.DataFrame({"round": [1, 2], "loss": [0.5, 0.1]}), pd.DataFrame({"round": [1], "loss": [1 / 3]})
EARLIER = "round,loss,checksum\n1,0.5,2-5c2bef9d\n2,0.1,2-5c2bef9d\n"
"""`OLD`, as versions with a column of checksums wrote it."""


def read(file: Path) -> pd.DataFrame:
    return read_checked_csv(file, ["round"], "write it again")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_checked_csv(tmp_path / "x.csv", OLD)
    return tmp_path / "x.csv"


def test_pandas_and_sha256sum_read_what_is_written(file: Path) -> None:
    pd.testing.assert_frame_equal(pd.read_csv(file), OLD)
    write_checked_csv(file, NEW)
    pd.testing.assert_frame_equal(pd.read_csv(file), NEW)
    assert subprocess.run(["sha256sum", "--check", sum_file(file).name], cwd=file.parent, check=False).returncode == 0
    write_checked_csv(file, NEW.iloc[:0])
    assert read(file).empty and file not in UNCHECKED


@pytest.mark.parametrize("damaged", ["x.csv", "x.csv.sha256"])
def test_a_changed_byte_and_a_missing_row_are_found(damaged: str, file: Path) -> None:
    place = file.with_name(damaged)
    whole = place.read_bytes()
    for content in (whole.replace(b"5", b"6", 1), whole[: len(whole) // 2], whole.rpartition(b"\n2")[0] + b"\n", b""):
        place.write_bytes(content)
        with pytest.raises(DamagedFileError, match=r"x.csv' is damaged \(.*\): write it again"):
            read(file)


@pytest.mark.parametrize("before", [None, OLD.to_csv(index=False), EARLIER])
def test_a_kill_between_two_files_leaves_the_old_table_or_the_new_one(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, writes = tmp_path / "x.csv", csv_json.write_bytes
    for survived in range(3):
        sum_file(file).unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        if before == EARLIER:
            file.write_text(EARLIER, encoding="utf-8")
        elif before is not None:
            write_checked_csv(file, OLD)
        left = [survived]

        def killed(path: Path, content: bytes, left: list[int] = left) -> None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            writes(path, content)

        with monkeypatch.context() as patched:
            patched.setattr(csv_json, "write_bytes", killed)
            try:
                write_checked_csv(file, NEW)
            except KeyboardInterrupt:
                assert survived < 2 or before is not None
        if survived >= 2 or before is not None:
            pd.testing.assert_frame_equal(read(file), NEW if survived >= 2 else OLD)
            assert file not in UNCHECKED
        else:
            assert not file.exists()


def test_a_full_disk_leaves_the_old_table(file: Path) -> None:
    with pytest.raises(UserError, match="cannot write"), full_disk():
        write_checked_csv(file, pd.concat([NEW] * 10_000))
    pd.testing.assert_frame_equal(read(file), OLD)
    assert sum_file(file).read_text(encoding="utf-8").count("\n") == 1


def test_a_file_that_another_process_replaces_is_read_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_sum, once = csv_json._has_sum, [True]

    def meanwhile(path: Path, content: bytes) -> bool | None:
        if once.pop() if once else False:
            write_checked_csv(file, NEW)
        return has_sum(path, content)

    monkeypatch.setattr(csv_json, "_has_sum", meanwhile)
    pd.testing.assert_frame_equal(read(file), NEW)


def test_files_of_earlier_versions_are_read_and_written_anew_without_the_column(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text(EARLIER, encoding="utf-8")
    pd.testing.assert_frame_equal(read(file), OLD)
    for old, new, why in (("0.5", "0.6", "its content does not"), ("1,0.5,2-5c2bef9d\n", "", "it has 1 of 2 rows")):
        file.write_text(EARLIER.replace(old, new), encoding="utf-8")
        with pytest.raises(DamagedFileError, match=why):
            read(file)
    file.write_text(EARLIER, encoding="utf-8")
    sum_file(file).write_text(f"{'0' * 64}  x.csv\n", encoding="utf-8")  # that of another file
    pd.testing.assert_frame_equal(read(file), OLD)
    write_checked_csv(file, read(file))
    pd.testing.assert_frame_equal(pd.read_csv(file), OLD)
    without_checksum(file)
    pd.testing.assert_frame_equal(read(file), OLD)
    assert file in UNCHECKED


@pytest.mark.parametrize("seed", ["\f", "x", "1.5", "-1"])
def test_a_list_with_a_seed_that_is_no_number_is_damaged(seed: str, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    write_list(file, [{"label": "fedsam", "seed": "0"}, {"label": "fedsam", "seed": seed}])
    with pytest.raises(DamagedFileError, match=r"seed = .* \(allowed: a whole number\)"):
        read_list(file, ("label", "seed"), "repeat")
