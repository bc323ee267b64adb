"""Partitions from files: what is read, what is refused, and how a file is identified."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedflat.bench.data.partitions.base import partition_hash
from fedflat.bench.data.partitions.dirichlet import Dirichlet
from fedflat.bench.data.partitions.even import IID
from fedflat.bench.data.partitions.from_file import FromFile, Order
from fedflat.bench.data.partitions.lda import LDA
from fedflat.bench.input.errors import UserError
from tests.bench.data.labelled import LABELS, TRAIN, drawn, samples


def table_of(split: list[np.ndarray]) -> pd.DataFrame:
    index = np.concatenate(split)
    client = np.repeat(np.arange(len(split)), [len(indices) for indices in split])
    return pd.DataFrame({"client": client, "index": index, "label": LABELS[index], "filename": TRAIN.names[index]})


def write(table: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".npz":
        strings = {"filename": np.str_}
        np.savez(path, **{name: table[name].to_numpy().astype(strings.get(name, int)) for name in table})
    else:
        table.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".npz"])
@pytest.mark.parametrize("columns", [["client", "index"], ["client", "filename"], ["label", "index", "client"]])
def test_a_split_comes_back_from_its_file(ending, columns, tmp_path):
    split = drawn(Dirichlet(clients=7, alpha=0.3))
    table = table_of(split).sample(frac=1, random_state=0)[columns]
    partition = FromFile.parse({"file": write(table, tmp_path / f"my split_0.5{ending}")})
    assert partition.clients == 7
    assert partition.label == "file-my-split_0.5"
    assert partition_hash(drawn(partition)) == partition_hash(split)


def test_the_title_is_the_label_in_paths(tmp_path):
    path = write(table_of(drawn(IID(clients=2))), tmp_path / "split.csv")
    assert FromFile.parse({"file": path, "title": "lda-0"}).label == "lda-0"
    with pytest.raises(UserError, match="title = 'a/b': allowed are letters"):
        FromFile.parse({"file": path, "title": "a/b"})


def test_not_every_image_need_be_used(tmp_path):
    path = write(pd.DataFrame({"client": [1, 0, 1], "index": [5, 9, 2]}), tmp_path / "few.csv")
    assert [indices.tolist() for indices in drawn(FromFile.parse({"file": str(path)}))] == [[9], [2, 5]]


@pytest.mark.parametrize("columns", [["client", "index", "label"], ["client", "filename"]])
def test_images_may_stand_several_times_if_that_is_meant(columns, tmp_path):
    split = drawn(Dirichlet(clients=6, alpha=0.05, variant="released"))
    assert len(np.unique(np.concatenate(split))) < len(LABELS)
    path = write(table_of(split)[columns].sample(frac=1, random_state=0), tmp_path / "refilled.csv")
    assert partition_hash(drawn(FromFile.parse({"file": path, "repeats": True}))) == partition_hash(split)
    with pytest.raises(UserError, match=r"is listed twice, at clients .*; if this is intended, set repeats: true"):
        drawn(FromFile.parse({"file": path}))


def test_there_may_be_more_clients_than_images_if_images_repeat(tmp_path):
    many = pd.DataFrame({"client": range(3 * len(LABELS)), "index": [k % len(LABELS) for k in range(3 * len(LABELS))]})
    split = drawn(FromFile.parse({"file": write(many, tmp_path / "many.csv"), "repeats": True}))
    assert len(split) == 3 * len(LABELS)
    with pytest.raises(UserError, match="every client needs at least one"):
        drawn(IID(clients=len(LABELS) + 1))


def test_a_file_of_whole_floats_is_read(tmp_path):
    np.savez(tmp_path / "floats.npz", client=np.array([1.0, 0.0]), index=np.array([5.0, 9.0]))
    assert [i.tolist() for i in drawn(FromFile.parse({"file": tmp_path / "floats.npz"}))] == [[9], [5]]


def test_no_file_is_taken_for_a_generated_partition(tmp_path):
    path = write(table_of(drawn(IID(clients=4))), tmp_path / "dirichlet-0.1.csv")
    partition = FromFile.parse({"file": path})
    assert partition.label == "file-dirichlet-0.1" != Dirichlet(clients=4, alpha=0.1).label


def test_a_file_may_count_in_another_order(tmp_path):
    """The data set is stored class by class; the k-th image of a class is the same image in both orders."""
    by_class = np.argsort(LABELS, kind="stable")
    split = drawn(LDA(clients=5, alpha=1))
    path = write(table_of(split)[["client", "index", "label"]], tmp_path / "split.npz")
    order = write(pd.DataFrame({"label": LABELS}), tmp_path / "order.csv")
    here = samples(LABELS[by_class])
    ours = drawn(FromFile.parse({"file": path, "order": {"file": order}}), here)
    assert [sorted(by_class[indices]) for indices in ours] == [sorted(indices) for indices in split]
    with pytest.raises(
        UserError, match=r"has label \d in the file and \d in the data set \(\d+ of 600 labels differ\)"
    ):
        drawn(FromFile.parse({"file": path}), here)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS[:-1], "has 599 labels, but the data set has 600 training images"),
        (
            np.where(np.arange(600) == np.argmax(LABELS == 4), 5, LABELS),
            "has 59 images of class 4, but the data set has 60",
        ),
    ],
)
def test_an_order_of_another_data_set_is_refused(labels, message, tmp_path):
    path = write(pd.DataFrame({"label": labels}), tmp_path / "order.csv")
    with pytest.raises(UserError, match=message):
        Order.parse({"file": path}).positions(LABELS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,index\n0,5\n1,3\n1,5\n", r"image 5 is listed twice, at clients 0 and 1; if this is intended"),
        ("client,index\n0,5\n1,600\n", r"index = 600: the data set has training images 0 to 599"),
        ("client,index\n0,5\n1,-1\n", r"index = -1: the data set has"),
        ("client,index\n0,5\n1,2.5\n", r"index = '2\.5': allowed are whole numbers"),
        ("client,index\n0,5\n2,3\n", r"client 1 has no images: clients are numbered from 0 to N−1 without gaps"),
        ("client,index\n1,5\n2,3\n", r"client 0 has no images"),
        ("client,index\n-1,5\n0,3\n", r"client = -1: clients are numbered from 0"),
        ("client,index\nanna,5\n", r"client = 'anna': allowed are whole numbers"),
        ("client,index\n", r"has no rows"),
        ("", r"is neither CSV \(\.csv, \.csv\.gz\) nor npz"),
        ("user,index\n0,5\n", r"lacks the column client \(it has: user, index\)"),
        ("client,image\n0,5\n", r"lacks the column index, or filename \(it has: client, image\)"),
        ("client,filename\n0,nobody.png\n", r"the data set has no training image 'nobody\.png'"),
        ("client,filename\n0,image_003.png\n0,image_003.png\n", r"image_003\.png is listed twice, at clients 0 and 0"),
        (f"client,index,label\n0,5,{LABELS[5]}\n0,6,{(LABELS[6] + 1) % 10}\n", r"image 6 has label \d in the file"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_partition_file_is_reported(text, message, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as error:
        drawn(FromFile.parse({"file": path}))
    assert "mine.csv" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_label_distinguishes_images_of_one_name(tmp_path):
    """Two training images of CIFAR-100 share a name, and released splits name both."""
    train = samples(np.array([4, 2, 4, 9]), names=np.array(["a.png", "b.png", "b.png", "c.png"]))
    text = "client,filename,label\n0,b.png,4\n1,b.png,2\n1,c.png,9\n"
    path = tmp_path / "named.csv"
    path.write_text(text, encoding="utf-8")
    assert [indices.tolist() for indices in drawn(FromFile.parse({"file": path}), train)] == [[2], [1, 3]]
    path.write_text("client,filename\n0,b.png\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"2 training images are called 'b\.png'; add a column label to distinguish them"
    ):
        drawn(FromFile.parse({"file": path}), train)
    path.write_text("client,filename,label\n0,b.png,9\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"image b\.png has label 9 in the file and 2 in the data set"):
        drawn(FromFile.parse({"file": path}), train)


def test_filenames_need_a_data_set_with_names(tmp_path):
    path = write(pd.DataFrame({"client": [0], "filename": ["image_003.png"]}), tmp_path / "named.csv")
    with pytest.raises(UserError, match=r"this data set's images have no names \(allowed: index\)"):
        drawn(FromFile.parse({"file": path}), samples(LABELS))


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04nothing", gzip.compress(b"client,index\n0,1", mtime=0)[:-9], b"\xff\xfe\x00\x01\x02"]
)
def test_broken_files_are_refused(content, tmp_path):
    path = tmp_path / "mine.npz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"mine\.npz' (is neither CSV|lacks the column)"):
        FromFile.parse({"file": path})


def test_arrays_of_objects_and_uneven_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "objects.npz", client=np.array([0, None]), index=np.arange(2))
    with pytest.raises(UserError, match="nor npz with plain arrays"):
        FromFile.parse({"file": tmp_path / "objects.npz"})
    np.savez(tmp_path / "uneven.npz", client=np.zeros(2, int), index=np.arange(3))
    with pytest.raises(UserError, match=r"arrays differ in length \(client: 2, index: 3\)"):
        FromFile.parse({"file": tmp_path / "uneven.npz"})
    np.savez(tmp_path / "square.npz", client=np.zeros((2, 2), int), index=np.arange(2))
    with pytest.raises(UserError, match="client has 2 dimensions, not 1"):
        FromFile.parse({"file": tmp_path / "square.npz"})


def test_a_missing_file_is_reported():
    with pytest.raises(UserError, match=r"cannot read the partition file 'nowhere\.csv': No such file"):
        FromFile.parse({"file": "nowhere.csv"})
    with pytest.raises(UserError, match="the path of the partition file is empty"):
        FromFile.parse({"file": " "})
    with pytest.raises(UserError, match="there is no such home folder"):
        FromFile.parse({"file": "~nobody-of-this-name/split.csv"})
    with pytest.raises(UserError, match="file is missing"):
        FromFile.parse({})


def test_a_file_counts_by_its_content(tmp_path):
    path = write(table_of(drawn(IID(clients=4))), tmp_path / "mine.csv")
    known = FromFile.parse({"file": path})
    path.write_text("client,index\n0,1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"the partition file '.*mine\.csv' has changed: its hash differs"):
        drawn(known)
    path.unlink()
    assert FromFile.parse(known.model_dump()) == known, "the configuration of a finished run can still be read"


def test_stated_clients_are_checked(tmp_path):
    path = write(table_of(drawn(IID(clients=4))), tmp_path / "mine.csv")
    with pytest.raises(UserError, match="has 4 clients, not 5; leave out `clients`"):
        drawn(FromFile.parse({"file": path, "clients": 5}))
