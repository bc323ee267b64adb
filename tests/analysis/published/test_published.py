"""Published numbers: all of them are read, every kind of note is known, and a cell's keys find its number."""

import shutil
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from fedflat.analysis.published import numbers as module
from fedflat.analysis.published.numbers import (
    COLUMNS,
    DOUBTFUL,
    KEYS,
    NOTES,
    OTHER,
    PARTITIONS,
    PUBLISHED_METRICS,
    VALUELESS,
    PublishedNumber,
    as_printed,
    find,
    kinds,
    papers,
    published,
)
from fedflat.analysis.published.query import as_text, query
from fedflat.bench.experiments.files import PAPER_TABLES
from fedflat.bench.input.errors import UserError
from tests.analysis.published.published_counts import ROWS
from tests.commands import fedflat, refused

WITHOUT_VALUE = {
    ("fedgf", "1"): 17,
    ("fedgf", "7"): 17,
    ("fedsam_qu", "2"): 3,
    ("fedsam_qu", "5"): 2,
    ("fedtoga", "7"): 16,
}
"""How many of them are failures and dashes."""

CELL = {"paper": "fedgf", "method": "fedavg", "dataset": "cifar100", "partition": "lda", "partition_param": "0"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return published()


def test_all_rows_of_all_tables_are_there(frame):
    assert papers() == sorted(ROWS)
    assert frame.groupby(["paper", "table"]).size().to_dict() == {
        (paper, table): count for paper, tables in ROWS.items() for table, count in tables.items()
    }
    lacking = frame[frame["value"].isna()]
    assert lacking.groupby(["paper", "table"]).size().to_dict() == WITHOUT_VALUE
    assert len(published("fedgf")) == sum(ROWS["fedgf"].values())


def test_types_are_those_of_the_docstring(frame):
    assert [column for column in frame if column not in ("decimals", "std_decimals")] == COLUMNS
    assert {str(frame[name].dtype) for name in ("n_clients", "active_clients", "rounds")} == {"Int64"}
    assert {str(frame[name].dtype) for name in ("value", "std")} == {"float64"}
    assert all(frame[name].map(type).eq(str).all() for name in ("table", "partition_param", "variant", "note"))
    rounded = [f"{value:.{places}f}" for value, places in zip(frame["value"], frame["decimals"], strict=True)]
    assert [text for text in rounded if text != "nan"] == [text for text in as_printed()["value"] if text]


def test_nothing_is_known_that_does_not_occur(frame):
    """The lists of kinds, metrics and partitions are of the files; that nothing else occurs, reading them checks."""
    assert set(NOTES) == {kind for note in frame["note"] for kind in kinds(note)}
    assert len(NOTES) == len(VALUELESS) + len(DOUBTFUL) + len(OTHER)
    assert set(PUBLISHED_METRICS) == set(frame["metric"])
    assert set(frame["partition"]) == PARTITIONS


def test_kinds_of_notes():
    assert kinds("") == kinds("printed as Cost, equals ratio of rounds") == ()
    assert kinds("ocr_settled: text reads 20.91; table 5 prints 29.91") == ("ocr_settled",)
    assert kinds("decimal_restored: text reads 1000 | chance_level") == ("decimal_restored", "chance_level")
    assert kinds("censored; setting_inferred: dataset, model, clients") == ("censored", "setting_inferred")


def test_what_is_doubtful():
    """The rule of the published numbers: in fedsam_caldarola nothing is judged by but plain and confirmed numbers."""
    frame = published("fedsam_caldarola")
    judged = [note for note in frame["note"] if not PublishedNumber(1.0, note=note).doubtful]
    assert {kind for note in judged for kind in kinds(note)} == {"crosscheck", "ocr_settled"}
    assert all(kinds(note) for note in judged if note)
    for paper in ROWS:
        assert {PublishedNumber(1.0, note=note).doubtful for note in published(paper)["note"]} == {True, False}
    assert PublishedNumber(800.0, note="censored; setting_inferred: x").censored
    assert PublishedNumber(None, note="failed").failed
    assert not PublishedNumber(None, note="not_reported").failed


def test_every_row_is_found_by_its_own_keys(frame):
    """All keys of a row find that row and no other, but for the two numbers that cannot be assigned to columns."""
    ambiguous = 0
    for (paper, table), rows in frame.groupby(["paper", "table"]):
        for row in rows.to_dict("records"):
            keys = {key: row[key] for key in KEYS if not pd.isna(row[key]) and (row[key] != "" or key == "variant")}
            if "print order" in row["note"]:
                ambiguous += 1
                with pytest.raises(UserError, match="2 published numbers match"):
                    find(rows, **keys)
                continue
            number = find(rows, **keys)
            assert number is not None, (paper, table)
            assert number.note == row["note"]
            assert number.value == row["value"] or (number.value is None and pd.isna(row["value"]))
    assert ambiguous == 2


def test_what_a_table_leaves_open_fits_what_is_requested(frame):
    """FedGF's Table 2 has no participation, Table 3 no setting at all, and FedLESAM's Table 8 one number for two."""
    number = find(frame, **CELL, table="2", n_clients=100, active_clients=5, rounds=20000, metric="lpf")
    assert number == PublishedNumber(2.67, std_decimals=0)
    total = "direction=total;per=client_round"
    assert find(frame, **CELL, table="3", metric="model_transmissions", variant=total) == PublishedNumber(
        2.0, decimals=0, std_decimals=0
    )
    for alpha in ("0.6", "0.1", "0.6;0.1"):
        number = find(frame, paper="fedlesam", table="8", method="fedsam", partition_param=alpha)
        assert number is not None
        assert number.value == 25.71
    assert find(frame, paper="fedlesam", table="8", method="fedsam", partition_param="0.3") is None
    assert find(frame, **CELL, table="2", n_clients=200, metric="lpf") is None


def test_other_keys_must_be_equal(frame):
    """An empty variant is a variant: FedAvg of the plain row is not that with two epochs."""
    cell = {"table": "2", "method": "fedsam", "dataset": "cifar10", "partition_param": "0", "active_clients": 5}
    assert find(frame, paper="fedsam_caldarola", **cell, variant="") == PublishedNumber(70.16, std_decimals=0)
    assert find(frame, paper="fedsam_caldarola", **cell, variant="epoch=1") is None


def test_failures_and_bounds_are_found_as_such(frame):
    failed = find(frame, **{**CELL, "method": "scaffold"}, table="1", active_clients=5)
    assert failed is not None
    assert (failed.value, failed.failed) == (None, True)
    bound = find(frame, paper="fedtoga", table="8", method="fedlesam", partition_param="0.6", variant="target=0.82")
    assert bound is not None
    assert (bound.value, bound.censored) == (800.0, True)


def test_several_numbers_are_refused_with_what_distinguishes_them(frame):
    with pytest.raises(
        UserError,
        match=r"^3 published numbers match .*method fedavg.*, but one is needed: active_clients is 5, 10, 20$",
    ):
        find(frame, **CELL, table="1")


DAMAGES = [
    (
        "lenet,lda,0,100,5,10000,test_accuracy,63.63",
        "lenet,ldo,0,100,5,10000,test_accuracy,63.63",
        "unknown partition 'ldo'",
    ),
    ("10000,test_accuracy,63.63", "10000,tset_accuracy,63.63", "did you mean 'test_accuracy'?"),
    ("test_accuracy,63.63,,,", "test_accuracy,63.63,,,ocr_unsure", "unknown note 'ocr_unsure'"),
    ("test_accuracy,63.63,,,", "test_accuracy,63.63,,,censored; ocr_unsure: x", "unknown note"),
    ("test_accuracy,63.63,,,", "test_accuracy,,,,", "a row must have either a value or one of the notes"),
    ("test_accuracy,63.63,,,", "test_accuracy,63.63,,,failed", "a row must have either a value or one of the notes"),
    ("test_accuracy,63.63,,,", 'test_accuracy,"63,63",,,', "value = '63,63': allowed are plain decimals"),
    ("lda,0,100,5,10000,test_accuracy,63.63", "lda,0,100,5.0,10000,test_accuracy,63.63", "active_clients = '5.0'"),
    ("lda,0,100,5,10000,test_accuracy,63.63", "lda,0,100,10,10000,test_accuracy,63.63", "line 3 has the same keys"),
    (
        "fedgf,1,fedavg,cifar10,lenet,lda,0,100,5",
        "fedgf,2,fedavg,cifar10,lenet,lda,0,100,5",
        "in the file of fedgf table 1",
    ),
    ("paper,table,method", "paper,tabel,method", "has the columns paper, tabel"),
]


@pytest.mark.parametrize(("old", "new", "message"), DAMAGES, ids=[new[-20:] for _, new, _ in DAMAGES])
def test_damaged_files_are_reported(old, new, message, tmp_path, monkeypatch):
    shutil.copytree(PAPER_TABLES / "fedgf" / "published", tmp_path / "fedgf" / "published")
    file = tmp_path / "fedgf" / "published" / "table_01.csv"
    text = file.read_text(encoding="utf-8")
    assert text.count(old) >= 1
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    monkeypatch.setattr(module, "PAPER_TABLES", tmp_path)
    with pytest.raises(UserError) as error:
        published("fedgf")
    assert message in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_query_takes_any_of_the_values_of_each_column():
    found = query({"method": ["fedsam", "fedlesam"], "metric": ["lambda_max"]})
    assert Counter(found["paper"]) == {"fedgf": 6, "fedsam_caldarola": 2}
    assert set(query({}, ["failed"])["paper"]) == {"fedgf"}
    assert len(query({})) == sum(sum(tables.values()) for tables in ROWS.values())


def test_a_query_without_an_answer_is_one_line():
    with pytest.raises(UserError, match=r"unknown dataset 'cifar11'; did you mean 'cifar10'\?"):
        query({"dataset": ["cifar11"]})
    with pytest.raises(UserError, match=r"unknown kind of note 'fialed'; did you mean 'failed'\?"):
        query({}, ["fialed"])
    with pytest.raises(UserError, match=r"unknown table '99'.* \(allowed: 1, 2, .* 9, 10\)"):
        query({"paper": ["fedgf"], "table": ["99"]})
    with pytest.raises(UserError, match="no published number matches --paper fedgf --dataset emnist --note failed"):
        query({"paper": ["fedgf"], "dataset": ["emnist"]}, ["failed"])


def test_the_table_says_once_what_all_rows_share_and_fits_the_terminal():
    text = as_text(query({"paper": ["fedgf"], "table": ["2"], "method": ["fedsam"]}), 80)
    assert text.splitlines() == [
        "paper: fedgf; table: 2; dataset: cifar100; model: lenet; clients: of 100;",
        "method: fedsam",
        "",
        "partition  metric                value  note",
        "lda 0      lpf                   2.67",
        "lda 0      lambda_max            43.32  typo_suspected: identical value in tabl…",
        "lda 0      flatness_discrepancy  0.33",
        "lda 10     lpf                   1.10",
        "lda 10     lambda_max            25.36  typo_suspected: table 8 (cifar10) print…",
        "lda 10     flatness_discrepancy  0.04",
        "",
        "6 numbers",
    ]


def test_the_command_prints_a_table_or_csv_and_refuses_in_one_line():
    query = ["published", "--paper", "fedlesam", "--table", "2", "--method", "fedavg"]
    table = fedflat(*query)
    assert table.returncode == 0
    assert "dirichlet 0.6" in table.stdout
    assert "79.52 ± 0.13" in table.stdout
    csv = fedflat(*query, "--csv").stdout.splitlines()
    file = (PAPER_TABLES / "fedlesam" / "published" / "table_02.csv").read_text(encoding="utf-8").splitlines()
    assert csv == [file[0], *(line for line in file if line.startswith("fedlesam,2,fedavg,"))]
    assert "did you mean 'fedlesam'?" in refused("published", "--paper", "fedlesan")


def test_the_files_are_utf_8_without_mark():
    for file in Path(PAPER_TABLES).glob("*/published/*.csv"):
        assert file.read_bytes().startswith(b"paper,table,")


def test_deviations_are_numbers_of_their_own(frame):
    """As printed: FedGF's Table 9 has two decimals of both; Caldarola et al. print none."""
    number = find(frame, **CELL, table="9", active_clients=5)
    assert number is not None
    assert number.std is not None
    assert number.deviation == PublishedNumber(number.std, None, number.note, number.std_decimals, 2)
    assert PublishedNumber(70.16).deviation is None


def test_any_of_several_values_fits(frame):
    cell = {"paper": "fedsam_caldarola", "table": "2", "method": "fedavg", "dataset": "cifar10"}
    cell |= {"partition_param": "0", "active_clients": 5}
    one = find(frame, **cell, variant="epoch=1")
    assert one is not None
    assert find(frame, **cell, variant=("epoch=1", "epoch=7")) == one
    with pytest.raises(UserError, match="2 published numbers match"):
        find(frame, **cell, variant=("epoch=1", "epoch=2"))
