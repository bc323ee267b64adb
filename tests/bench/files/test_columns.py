"""User-defined tables: nothing is shifted or dropped in silence, and the invalid cell is the one that is reported."""

import io

import numpy as np
import pytest

from fedflat.bench.files.column_file import Columns, integers, read_columns, texts
from fedflat.bench.input.errors import UserError


def npz(**columns: np.ndarray) -> Columns:
    file = io.BytesIO()
    np.savez(file, **columns)
    return read_columns(file.getvalue(), "it")


def csv(text: str) -> Columns:
    return read_columns(text.encode(), "it")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,index\n0,5,9\n1,3,9\n", "it: line 2 has 3 fields, but the header has 2 fields"),
        ("client,index\n0,5\n\n1,3,\n", "it: line 4 has 3 fields, but the header has 2 fields"),
        ("client,index\n0,5\n1\n", "it: line 3 has 1 field, but the header has 2 fields"),
        ("client,client\n0,5\n", "it has two columns named 'client'"),
        ("", "it is neither CSV"),
        ('client,index\n0,"5\n', "it is neither CSV"),
        ("client,index\n0,\x005\n", "it is neither CSV"),
    ],
)
def test_a_table_that_is_none_is_refused(text: str, message: str) -> None:
    """A row with one field too many shifts every column, if its first is taken for an index."""
    with pytest.raises(UserError) as error:
        csv(text)
    assert str(error.value).startswith(message)


def test_what_programs_write_is_read() -> None:
    """A byte order mark, Windows line ends, quotes, spaces after commas and header, no line end at the end."""
    columns = csv('\ufeffclient , index\r\n"0", 5\r\n\r\n 1, 3')
    assert list(columns) == ["client", "index"]
    assert integers(columns, "client", "it").tolist() == [0, 1]
    assert integers(columns, "index", "it").tolist() == [5, 3]


@pytest.mark.parametrize("value", ["anna", "2.5", "", "nan", "inf", "1e30", "99999999999999999999", "True", "+-3"])
def test_the_first_cell_that_is_no_whole_number_is_reported(value: str) -> None:
    with pytest.raises(UserError) as error:
        integers(csv(f"round,client\n0,3\n1,{value}\n2,zoe\n"), "client", "it")
    assert str(error.value) == f"it: client = '{value}': allowed are whole numbers"


def test_whole_numbers_may_be_written_as_floats() -> None:
    assert integers(csv("client\n0.0\n-2\n1e3\n9007199254740993\n"), "client", "it").tolist() == [
        0, -2, 1000, 9007199254740993,
    ]  # fmt: skip
    for kind in (np.float64, np.float32, np.uint8):
        column = integers(npz(client=np.array([0, 7], kind)), "client", "it")
        assert column.tolist() == [0, 7]
        assert column.dtype == np.int64
    for odd, shown in ((2.5, "2.5"), (np.nan, "nan"), (np.inf, "inf")):
        with pytest.raises(UserError, match=f"client = {shown}: allowed are whole numbers"):
            integers(npz(client=np.array([0.0, odd])), "client", "it")
    with pytest.raises(UserError, match="client = True: allowed are whole numbers"):
        integers(npz(client=np.array([True, False])), "client", "it")


def test_names_are_not_changed() -> None:
    columns = csv("client,filename\n007,NA\nzoe , a b.png\n12,null\n")
    assert texts(columns, "client", "it").tolist() == ["007", "zoe", "12"]
    assert texts(columns, "filename", "it").tolist() == ["NA", "a b.png", "null"]
    assert texts(npz(client=np.array([7, 12])), "client", "it").tolist() == ["7", "12"]
    assert texts(npz(client=np.array([b"007", b"zoe"])), "client", "it").tolist() == ["007", "zoe"]


def test_every_name_is_filled() -> None:
    with pytest.raises(UserError, match="it: client is empty in row 2 of 3"):
        texts(csv("client,filename\nanna,a\n ,b\n,c\n"), "client", "it")
    with pytest.raises(UserError, match=r"it lacks the column client \(it has: filename\)"):
        texts(csv("filename\na\n"), "client", "it")
    with pytest.raises(UserError, match="it has no rows"):
        texts(csv("client\n"), "client", "it")
