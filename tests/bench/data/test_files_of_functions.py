"""The files that a function of a user reads belong to its data: a change of one is noticed."""

import json
from pathlib import Path

import pytest

from fedflat.bench.code.opened_files import opened_files
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.data.sources import parse_source
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from tests.bench.data.runs import run_on

CODE = """
from pathlib import Path
import numpy as np
import pandas as pd

def build():
    table = pd.read_csv(Path(__file__).with_name("rows.csv"))
    with open(Path(__file__).with_name("calls.txt"), "a") as calls:
        calls.write(".")
    x, y = table[["a", "b"]].to_numpy(float), table["y"].to_numpy()
    return {"x_train": x, "y_train": y, "x_test": x[:2], "y_test": y[:2]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(CODE, encoding="utf-8")
    trust((tmp_path / "mine.py").read_bytes())
    write(tmp_path, 40)
    return tmp_path / "mine.py"


def write(folder: Path, rows: int) -> None:
    text = "a,b,y\n" + "".join(f"{k},{k % 7},{k % 2}\n" for k in range(rows))
    (folder / "rows.csv").write_text(text, encoding="utf-8")


def load(file: Path, **options):
    return parse_source({"name": f"{file}:build", **options}).load(file.parent / "root")


def calls(file: Path) -> int:
    return (file.parent / "calls.txt").stat().st_size


def test_a_changed_file_is_read_again(file):
    whole = load(file)
    assert load(file).content_hash() == whole.content_hash()
    assert (len(whole.train), calls(file)) == (40, 1)
    write(file.parent, 20)
    half = load(file)
    assert (len(half.train), calls(file)) == (20, 2)
    assert half.content_hash() != whole.content_hash()
    assert (len(load(file).train), calls(file)) == (20, 2)


def test_the_data_remain_without_the_file(file):
    """An analysis of a finished run does not need it."""
    load(file)
    (file.parent / "rows.csv").unlink()
    assert (len(load(file).train), calls(file)) == (40, 1)


def test_data_of_an_earlier_version_are_read_again_but_not_by_a_runs_copy(file):
    """It left no record of the files; a run's copy of the code may have none next to it."""
    load(file)
    [record] = (file.parent / "root" / "cache").glob("*.files.json")
    record.unlink()
    stored = parse_source(f"{file}:build").model_dump(mode="json")
    copy = file.parent / "run" / "dataset.py"
    copy.parent.mkdir()
    copy.write_bytes(file.read_bytes())
    assert len(parse_source({**stored, "file": str(copy)}).load(file.parent / "root").train) == 40
    assert calls(file) == 1
    load(file)
    assert calls(file) == 2


def config(file: Path, **options) -> RunConfig:
    return run_on({"name": f"{file}:build", **options})


def test_listed_files_count_in_the_identity(file):
    listed = config(file, files=["rows.csv"])
    assert listed.identity != config(file).identity
    assert RunConfig.parse(json.loads(listed.model_dump_json())).identity == listed.identity
    other = file.parent / "other" / "mine.py"
    other.parent.mkdir()
    other.write_bytes(file.read_bytes())
    write(other.parent, 40)
    assert config(other, files=["rows.csv"]).identity == listed.identity
    write(other.parent, 20)
    assert config(other, files=["rows.csv"]).identity != listed.identity
    assert len(load(other, files=["rows.csv"]).train) == 20


def test_a_listed_file_that_is_missing_is_one_line(file):
    with pytest.raises(UserError, match=r"cannot read the input file '.*/absent.csv': No such file or directory"):
        parse_source({"name": f"{file}:build", "files": ["absent.csv"]})


def test_only_files_that_are_read_and_are_data_are_opened_files(tmp_path):
    read, written, code = (tmp_path / name for name in ("read.txt", "written.txt", "code.py"))
    for one in (read, code):
        one.write_text("1", encoding="utf-8")
    with opened_files() as opened:
        read.read_text(encoding="utf-8")
        written.write_text("2", encoding="utf-8")
        code.read_text(encoding="utf-8")
        Path(pytest.__file__).read_bytes()
        with pytest.raises(FileNotFoundError):
            (tmp_path / "absent").read_bytes()
    read.read_text(encoding="utf-8")
    assert opened == {str(read): [1, read.stat().st_mtime_ns]}
