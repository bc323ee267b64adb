"""A user's table: its features, what identifies it, and what is refused."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedflat.bench.data import inventory
from fedflat.bench.data.sources import parse_source
from fedflat.bench.input.errors import UserError
from tests.bench.data.runs import run_on

ROWS = pd.DataFrame(
    {
        "age": [30.0, 40, 50, 60, 70, 80, 90, 20],
        "city": ["Rome", "Oslo", "Rome", "Oslo", "Rome", "Rome", "Oslo", "Bern"],
        "smoker": [True, False, True, False, False, True, False, True],
        "zone": [1, 2, 1, 2, 1, 2, 1, 2],
        "ward": ["b", "a", "b", "a", "b", "a", "b", "a"],
        "ill": ["yes", "no", "yes", "no", "yes", "no", "yes", "no"],
    }
)


def saved(folder: Path, table: pd.DataFrame = ROWS, name: str = "patients.csv") -> str:
    table.to_csv(folder / name, index=False)
    return str(folder / name)


def load(file: str, **options):
    return parse_source({"name": "table", "file": file, "label": "ill", **options}).load(Path(file).parent)


def test_features_are_standardised_numbers_truth_values_and_categories(tmp_path):
    test = ROWS.iloc[:2].assign(city=["Oslo", "Paris"], age=[55.0, 65.0])  # no training row is from Paris
    data = load(
        saved(tmp_path),
        test={"file": saved(tmp_path, test, "later.csv")},
        categorical=["zone"],
        client="ward",
    )
    ages = (ROWS.age - ROWS.age.mean()) / ROWS.age.std(ddof=0)
    expected = np.column_stack(
        [
            ages,
            ROWS.city == "Bern",
            ROWS.city == "Oslo",
            ROWS.city == "Rome",
            ROWS.smoker,
            ROWS.zone == 1,
            ROWS.zone == 2,
        ]
    )
    assert data.train.images == pytest.approx(expected.astype(float), abs=1e-6)
    assert data.test.images[:, 1:4].tolist() == [[0, 1, 0], [0, 0, 0]]
    assert data.test.images[:, 0] == pytest.approx((np.array([55, 65]) - 55) / ROWS.age.std(ddof=0))
    assert data.train.labels.tolist() == [1, 0] * 4
    assert data.train.groups.tolist() == [1, 0] * 4
    assert (data.name, data.classes, data.image_shape) == ("patients", 2, (7,))


def test_a_share_of_each_class_is_for_the_test(tmp_path):
    large = pd.concat([ROWS] * 20, ignore_index=True).assign(number=range(160))
    file = saved(tmp_path, large)
    data = load(file, ignore=["city", "smoker", "zone", "ward", "age"], test_share=0.25)
    assert np.bincount(data.train.labels).tolist() == [60, 60]
    assert np.bincount(data.test.labels).tolist() == [20, 20]
    both = np.concatenate([data.train.images, data.test.images])
    assert len(np.unique(both)) == 160
    assert data.train.images.mean() == pytest.approx(0, abs=1e-6)  # of the training rows, not of all


def test_missing_values_are_refused_or_filled_in(tmp_path):
    gaps = ROWS.copy()
    gaps.loc[2, "age"], gaps.loc[7, "city"] = None, None
    file, test = saved(tmp_path, gaps), {"file": saved(tmp_path, ROWS, "later.csv")}
    with pytest.raises(UserError, match=r"age of row 3 is missing \(allowed: values; missing: impute fills them in\)"):
        load(file, test=test)
    data = load(file, test=test, missing="impute", ignore=["ward", "zone", "smoker"])
    filled = gaps.assign(age=gaps.age.fillna(gaps.age.median()))
    assert data.train.images[:, 0] == pytest.approx((filled.age - filled.age.mean()) / filled.age.std(ddof=0))
    assert data.train.images[7, 1:].tolist() == [0, 1]  # Oslo and Rome; Rome is the most frequent


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "il"}, "unknown column of the table 'FILE' 'il'; did you mean 'ill'?"),
        ({"label": "share"}, "share has 0.5 (allowed: texts or whole numbers, the classes)"),
        ({"lable": "ill"}, "unknown key of table 'lable'; did you mean 'label'?"),
        ({"ignore": ["age", "city", "smoker", "zone", "ward", "share", "endless"]}, "has no column of features"),
        ({}, "endless has infinite values (allowed: finite numbers)"),
        ({"file": "rows.txt"}, "is no table that is known (allowed: .csv, .csv.gz, .parquet)"),
        ({"file": "other.csv"}, "cannot be read (Error tokenizing data."),
        ({"file": "empty.csv"}, "has no rows"),
        ({"test": {"file": "strange.csv"}, "ignore": ["endless"]}, "ill has 'perhaps', which no training row has"),
    ],
)
def test_wrong_tables_are_one_line(options, message, tmp_path):
    file = saved(tmp_path, ROWS.assign(share=0.5, endless=[np.inf, *range(7)]))
    for name, text in {
        "rows.txt": "a,ill\n1,2\n",
        "other.csv": 'a,b\n1,2,3\n4,5,6,7\n"',
        "empty.csv": "age,ill\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    saved(tmp_path, ROWS.assign(share=0.5, endless=0.0, ill="perhaps"), "strange.csv")
    given = {"file": file, **options}
    for place in (given, given.get("test", {})):
        if "file" in place:
            place["file"] = str(tmp_path / place["file"])
    with pytest.raises(UserError, match=re.escape(message.replace("FILE", file))) as error:
        load(**given)
    assert "\n" not in str(error.value)


def test_identity_depends_on_contents_and_options_only(tmp_path):
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        saved(tmp_path / place)
        saved(tmp_path / place, ROWS.iloc[:4], "later.csv")

    def identity(place: str, **options) -> str:
        dataset = {"name": str(tmp_path / place / "patients.csv"), "label": "ill", **options}
        return run_on(dataset).identity

    later = [{"test": {"file": str(tmp_path / place / "later.csv")}} for place in ("one", "two")]
    assert identity("one") == identity("two")
    assert identity("one", **later[0]) == identity("two", **later[1]) != identity("one")
    before = identity("two")
    saved(tmp_path / "two", ROWS.iloc[:6])
    assert before != identity("two")


def test_a_stored_configuration_is_read_again(tmp_path):
    source = parse_source({"name": "table", "file": saved(tmp_path), "label": "ill"})
    assert parse_source(source.model_dump(mode="json")) == source


def test_parquet_gives_the_same_samples(tmp_path):
    pytest.importorskip("pyarrow")
    ROWS.to_parquet(tmp_path / "patients.parquet")
    assert load(str(tmp_path / "patients.parquet")).content_hash() == load(saved(tmp_path)).content_hash()


def test_parquet_without_its_package_is_one_line(tmp_path, monkeypatch):
    def absent(file):
        raise ImportError

    monkeypatch.setattr(pd, "read_parquet", absent)
    (tmp_path / "patients.parquet").write_bytes(b"PAR1")
    with pytest.raises(
        UserError, match=r"needs the package pyarrow; install it with: pip install 'fedflat\[parquet\]'"
    ):
        load(str(tmp_path / "patients.parquet"))


@pytest.mark.parametrize("name", ["table", "rows.csv", "rows.parquet"])
def test_a_command_that_has_no_label_names_one_that_has(name, tmp_path):
    with pytest.raises(UserError, match="a table is named by an experiment, which says what its label is"):
        list(inventory.check(name, tmp_path))
