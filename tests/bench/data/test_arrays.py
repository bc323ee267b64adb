"""A user's arrays, from an npz file or from a function: what is read, what identifies it, and what is refused."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fedflat import load_run
from fedflat.bench.code.named_code import trust_named
from fedflat.bench.data import cache
from fedflat.bench.data.partitions import parse_partition
from fedflat.bench.data.root import ENVIRONMENT
from fedflat.bench.data.sources import parse_source
from fedflat.bench.data.sources.digits import Digits
from fedflat.bench.experiments.experiment import Cell, load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.numerics.streams import numpy_stream
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import RunSetup
from tests.commands import fedflat
from tests.problems import train
from tests.strangers import become_another_user

CPU = torch.device("cpu")
WRITERS = np.array([f"writer {k % 7}" for k in range(901)])
"""Seven clients of digits' training images."""

BUILD = """
import numpy as np

CALLS = "calls.txt"

def signals():
    with open(CALLS, "a") as file:
        file.write("called\\n")
    x = np.arange(120.0).reshape(6, 20)
    return {"x_train": x, "y_train": [0, 1, 2, 0, 1, 2], "x_test": x[:3] + 1, "y_test": [0, 1, 2]}

def nothing():
    return None

def fails():
    return {"x_train": 1 / 0}
"""


def digits(**changes) -> dict[str, np.ndarray]:
    """Digits as signals of 64 values in float64, with clients."""
    data = Digits().load()
    arrays = {
        "x_train": data.train.images.reshape(-1, 64) / 16,
        "y_train": data.train.labels.astype(np.uint8),
        "x_test": data.test.images.reshape(-1, 64) / 16,
        "y_test": data.test.labels.astype(np.int32),
        "client_train": WRITERS,
    }
    return {name: value for name, value in {**arrays, **changes}.items() if value is not None}


def saved(file: Path, **arrays) -> Path:
    file.parent.mkdir(exist_ok=True, parents=True)
    np.savez(file, **arrays)
    return file


def load(file: Path, **options):
    return parse_source({"name": "arrays", "file": str(file), **options}).load(file.parent)


def test_floats_are_used_as_they_are(tmp_path):
    data = load(saved(tmp_path / "my signals.npz", **digits()))
    assert (data.name, data.classes, data.image_shape) == ("my-signals", 10, (64,))
    assert isinstance(data.train.images, np.memmap)
    x, y = data.on(CPU)[0].batch(torch.arange(901))
    assert torch.equal(x, torch.from_numpy(digits()["x_train"]).float())
    assert y.tolist() == digits()["y_train"].tolist()
    by_client = parse_partition({"name": "by_group", "clients": 7}, "a test")
    split = by_client.split(data.train, numpy_stream(0, "partition"))
    assert [WRITERS[own].tolist() for own in split] == [[f"writer {k}"] * len(own) for k, own in enumerate(split)]


def test_bytes_are_normalised_by_channel(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 3, 4, 5), dtype=np.uint8)
    labels = np.arange(30) % 3
    data = load(saved(tmp_path / "a.npz", x_train=images, y_train=labels, x_test=images[:3], y_test=labels[:3]))
    x, _ = data.on(CPU)[0].batch(torch.arange(30))
    assert torch.allclose(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(x.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5)


def test_bytes_without_channels_have_one_mean(tmp_path):
    """Rows of grey images are no channels; the columns of a table are features, each with its own mean."""
    values = np.random.default_rng(0).integers(0, 256, (30, 4, 5), dtype=np.uint8)
    y = np.arange(30) % 3
    for name, x, means in (("images", values, 1), ("table", values.reshape(30, -1), 20)):
        data = load(saved(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x[:3], y_test=y[:3]))
        axes = None if means == 1 else 0
        assert data.mean == pytest.approx(np.atleast_1d(x.mean(axes) / 255)), name
        assert data.std == pytest.approx(np.atleast_1d(x.std(axes) / 255)), name
        read, _ = data.on(CPU)[0].batch(torch.arange(30))
        assert torch.allclose(read.mean(), torch.zeros(()), atol=1e-5)


def config(dataset, **changes) -> RunConfig:
    values = {
        "dataset": dataset,
        "model": "mlp",
        "partition": {"name": "by_group", "clients": 7},
        "participation": {"active": 3},
        "method": {"name": "fedsam", "hyperparameters": {"rho": 0.1}},
        "training": {"rounds": 4, "local_epochs": 2, "batch_size": 16, "lr": 0.1},
        "seed": 0,
    }
    return RunConfig.parse({**values, **changes})


def test_identity_depends_on_the_content_only(tmp_path):
    files = [saved(tmp_path / place / "a.npz", **digits()) for place in ("one", "two")]
    other = saved(tmp_path / "three" / "a.npz", **digits(client_train=None))
    renamed = files[1].rename(tmp_path / "two" / "b.npz")
    one, two, three = (config({"name": "arrays", "file": file}).identity for file in (files[0], renamed, other))
    assert one == two != three


def test_the_name_of_an_npz_file_is_a_data_set(tmp_path):
    file = saved(tmp_path / "a.npz", **digits())
    (tmp_path / "mine.yaml").write_text("name: mine\nextends: quick\ndataset: a.npz\nmodel: mlp\n", "utf-8")
    dataset = next(iter(load_experiment(str(tmp_path / "mine.yaml")).cells().values())).runs[0].dataset
    assert dataset == config({"name": "arrays", "file": file}).dataset == parse_source(str(file))
    assert parse_source({"name": str(file), "classes": 12}).load(tmp_path).classes == 12


def test_a_run_survives_without_the_file(tmp_path, monkeypatch):
    """The cache has the arrays by their content; without both, and after an edit, one line says so."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "root"))
    file = saved(tmp_path / "a.npz", **digits())
    run = train(config({"name": "arrays", "file": file}), tmp_path / "run", CPU)
    assert run.metrics()["test_accuracy"].iloc[-1] > 30
    file.rename(tmp_path / "away.npz")
    again = RunDirectory(run.path).config
    assert RunSetup.build(again, CPU).dataset.content_hash() == run.provenance["data_hash"]
    with pytest.raises(UserError, match=r"cannot read the array file '.*a.npz': No such file"):
        again.dataset.load(tmp_path / "elsewhere")
    saved(file, **digits(client_train=None))
    with pytest.raises(UserError, match="has changed: its hash differs"):
        again.dataset.load(tmp_path / "elsewhere")


X, Y = np.zeros((4, 3)), np.array([0, 1, 0, 1])
BASE = {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}
NAN, INFINITE = X.copy(), X.copy()
NAN[2, 1], INFINITE[3] = np.nan, 1e300


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None}, "has no x_test (needed: x_train, y_train, x_test, y_test"),
        ({"x_trian": X}, "unknown array in the array file 'FILE' 'x_trian'; did you mean 'x_train'?"),
        ({"y_train": Y.astype(float)}, "y_train has the dtype float64 (allowed: whole numbers 0, 1, 2, ..."),
        ({"y_train": Y.astype(bool)}, "y_train has the dtype bool"),
        ({"y_train": np.eye(2)[Y]}, "y_train has the shape [4, 2] (allowed: [n], one label per sample)"),
        ({"y_train": Y[:3]}, "x_train has 4 samples, but y_train has 3"),
        ({"y_test": Y[:1]}, "x_test has 4 samples, but y_test has 1"),
        ({"y_test": Y + 1}, "y_test has the label 2 (allowed: 0 to 1)"),
        ({"y_train": Y - 1}, "y_train has the label -1 (allowed: whole numbers 0, 1, 2, ...)"),
        ({"y_train": Y * 2}, "y_train has the labels 0 to 2, but not 1; number the classes from 0"),
        ({"y_train": Y + 1, "y_test": Y + 1}, "y_train has the labels 1 to 2, but not 0"),
        ({"y_train": Y * 0, "y_test": Y * 0}, "y_train has one class (allowed: at least two)"),
        ({"x_train": NAN}, "sample 2 of x_train has NaN or infinite values in float32"),
        ({"x_test": INFINITE}, "sample 3 of x_test has NaN or infinite values in float32"),
        ({"x_train": X.astype(bool)}, "x_train has the dtype bool (allowed: uint8, floating-point or whole numbers)"),
        ({"x_train": X[:, 0]}, "x_train has the shape [4] (allowed: [n, ...], at least one sample)"),
        ({"x_train": X[:0]}, "x_train has the shape [0, 3] (allowed: [n, ...]"),
        ({"x_test": X[:, :2]}, "a sample of x_test has the shape (2,), but one of x_train (3,)"),
        ({"x_test": X.astype(np.uint8)}, "a sample of x_test has the dtype uint8, but one of x_train float32"),
        ({"x_train": X.astype(object)}, "x_train is an array of Python objects, which is never read"),
        ({"client_train": Y[:3]}, "x_train has 4 samples, but client_train has 3"),
        ({"client_train": X}, "client_train is float64 of the shape [4, 3] (allowed: [n], whole numbers or texts)"),
    ],
)
def test_wrong_arrays_are_one_line(changes, message, tmp_path):
    given = {name: value for name, value in {**BASE, **changes}.items() if value is not None}
    file = saved(tmp_path / "a.npz", **given)
    with pytest.raises(UserError, match=re.escape(message.replace("FILE", str(file)))):
        load(file)
    assert not [*tmp_path.rglob("*.tmp")], "nothing half-written"


def test_files_that_are_no_npz_are_one_line(tmp_path):
    np.save(tmp_path / "single.npy", X)
    whole = saved(tmp_path / "a.npz", **BASE).read_bytes()
    (tmp_path / "single.npy").rename(tmp_path / "b.npz")
    (tmp_path / "cut.npz").write_bytes(whole[:100] + whole[110:])
    for name, message in (("b.npz", "is no npz file"), ("cut.npz", "is (damaged|no npz)"), ("none.npz", "cannot read")):
        with pytest.raises(UserError, match=message):
            load(tmp_path / name)


def test_the_number_of_classes_may_be_given(tmp_path):
    file = saved(tmp_path / "a.npz", **BASE)
    assert load(file).classes == 2
    assert load(file, classes=5).classes == 5
    with pytest.raises(UserError, match=r"y_train has the label 1 .*|classes"):
        load(saved(tmp_path / "b.npz", **{**BASE, "y_train": Y + 1}), classes=2)


EXPERIMENT = """
name: own
extends: quick
dataset: {name: "mine.py:signals", title: waves}
model: {name: mlp, hidden: [8]}
training: {rounds: 1}
evaluation: {every: 1, snapshot_every: null}
engine: {backend: loop}
grid: {partition: [{name: iid, clients: 2}], participation: [{sampling: full}], seeds: [0]}
methods: {fedavg: {}}
"""


@pytest.fixture
def cell(tmp_path, monkeypatch) -> Cell:
    """The only cell of an experiment with this function, in the present folder."""
    (tmp_path / "mine.py").write_text(BUILD, encoding="utf-8")
    (tmp_path / "own.yaml").write_text(EXPERIMENT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "root"))
    [cell] = load_experiment("own.yaml").cells().values()
    return cell


def test_a_function_is_called_once_and_its_code_belongs_to_the_run(cell, tmp_path):
    assert cell.path == "waves/iid/all-of-2/fedavg"
    run = train(cell.runs[0], tmp_path / "run", CPU)
    assert (run.path / "dataset.py").read_text(encoding="utf-8") == BUILD
    assert run.config.identity == cell.runs[0].identity
    assert RunSetup.build(run.config, CPU).dataset.image_shape == (20,)
    assert Path("calls.txt").read_text(encoding="utf-8") == "called\n"
    done = fedflat("data", "prepare", "mine.py:signals", "--root", "root")
    assert done.stdout.startswith("signals: 6 training and 3 test samples in 3 classes, hash "), done
    assert Path("calls.txt").read_text(encoding="utf-8") == "called\n" * 2


UNSEEDED = """
import numpy as np

def build():
    order = np.random.default_rng().permutation(40)
    x, y = order[:, None].astype(float), order % 2
    return {"x_train": x[:30], "y_train": y[:30], "x_test": x[30:], "y_test": y[30:]}
"""


def test_training_and_test_samples_are_of_one_call(tmp_path, monkeypatch):
    """Also after a kill between the two, or the loss of either: no sample is in both."""
    (tmp_path / "mine.py").write_text(UNSEEDED, encoding="utf-8")
    trust_named(f"{tmp_path}/mine.py:build")
    source, root = parse_source(f"{tmp_path}/mine.py:build"), tmp_path / "root"
    wrote, write = [], cache._write

    def killed(work: Path, *arguments: object) -> None:
        if wrote:
            raise KeyboardInterrupt
        wrote.append(write(work, *arguments))

    def samples_of_both() -> list[float]:
        data = source.load(root)
        return [*data.train.images[:, 0].tolist(), *data.test.images[:, 0].tolist()]

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(cache, "_write", killed)
        source.load(root)
    for lost in (0, 1):
        assert sorted(samples_of_both()) == [*range(40)]
        shutil.rmtree(sorted(root.rglob("meta.json"))[lost].parent)
    first = samples_of_both()
    assert sorted(first) == [*range(40)]
    assert samples_of_both() == first, "stored"


def test_a_function_in_a_run_of_others_is_not_called(cell, tmp_path, monkeypatch):
    """Its code must be trusted; a configuration that names code outside of the run is refused."""
    path = train(cell.runs[0], tmp_path / "run", CPU).path
    become_another_user(tmp_path / "another user", monkeypatch)
    with pytest.raises(UserError, match=r"data set file '.*dataset.py' is code that no experiment here has"):
        _ = RunDirectory(path).config
    assert load_run(path, trust=True).config.dataset.label == "waves"
    stored = json.loads((path / "config.json").read_text(encoding="utf-8"))
    del stored["checksum"]
    stored["dataset"] = {"name": f"{tmp_path}/mine.py:fails"}
    (path / "config.json").write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(UserError, match=r"dataset is code (at|outside of)"):
        _ = RunDirectory(path).config


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("mine.py:signal", "unknown function of the data set file 'mine.py' 'signal'; did you mean 'signals'?"),
        ("mine.py:nothing", "the data set file 'mine.py' fails: the result is NoneType (allowed: a dictionary"),
        ("mine.py:fails", "the data set file 'mine.py' fails in line 16: ZeroDivisionError: division by zero"),
        ("mine.py:", "data set 'mine.py:': a user-defined data set must be path/to/file.py:function"),
        ("other.py:signals", "cannot read the data set file 'other.py'"),
    ],
)
def test_wrong_functions_are_one_line(reference, message, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(BUILD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    trust_named(reference)
    with pytest.raises(UserError, match=re.escape(message)):
        parse_source(reference).load(tmp_path)
