"""Accuracies of clients and classes, and feature norms, against closed forms and counts by hand."""

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.analysis.measures.clients import (
    mean_of_classes,
    over_how_many,
    responses,
    summary,
    untested_classes,
)
from fedflat.bench.data.dataset import Samples
from fedflat.bench.data.partitions.base import Indices, Partition
from fedflat.bench.data.partitions.even import IID
from fedflat.bench.data.root import data_root
from fedflat.bench.engine.batches import LocalSteps
from fedflat.bench.engine.objective import Objective
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics.of_clients import expected_of_clients, label_shares, mean_of_clients
from fedflat.bench.numerics.streams import numpy_stream
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.run_setup import load_dataset
from fedflat.bench.training.train import train_cell
from tests.places import MINI
from tests.problems import stored

CPU = torch.device("cpu")
CELL = "digits/dirichlet-0.1/4-of-20/fedsam"


class Readout(nn.Module):
    """Scores are 2x, through a linear layer that the forward pass calls last and the module holds first."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3, bias=False)
        self.body = nn.Linear(3, 3, bias=False)
        with torch.no_grad():
            self.body.weight.copy_(2 * torch.eye(3))
            self.head.weight.copy_(torch.eye(3))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(x))
        return scores


def objective_of(build: Callable[[], nn.Module]) -> Objective:
    """On a module whose initial draws leave no trace."""
    with torch.random.fork_rng():
        return Objective(build())


X = torch.tensor([[3.0, 0, 4], [0, 2, 0], [1, 0, 0], [0, 0, 6]])
Y = torch.tensor([2, 0, 0, 2])  # predicted: 2, 1, 0, 2


def test_responses_of_a_linear_model() -> None:
    objective = objective_of(Readout)
    answers = responses(objective, objective.initial(), [(X[:3], Y[:3]), (X[3:], Y[3:])])
    assert answers.correct.tolist() == [True, False, True, True]
    assert answers.norms.tolist() == [10, 4, 2, 12]  # of 2x, which the last layer is given
    doubled = objective.initial()
    doubled[:9] *= 3  # the head: features stay, scores are 6x
    assert responses(objective, doubled, [(X, Y)]).norms.tolist() == [10, 4, 2, 12]
    assert responses(objective, doubled, [(X, Y)], "output").norms.tolist() == [30, 12, 6, 36]


def test_the_model_is_watched_no_longer_than_needed() -> None:
    objective = objective_of(Readout)
    responses(objective, objective.initial(), [(X, Y)])
    assert not any(part._forward_pre_hooks for part in objective.module.modules())


def test_a_model_without_a_linear_layer_has_scores_only() -> None:
    objective = objective_of(lambda: nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten()))
    data = [(torch.ones(2, 1, 2, 2), torch.tensor([0, 1]))]
    with pytest.raises(UserError, match="no linear layer"):
        responses(objective, objective.initial(), data)
    assert len(responses(objective, objective.initial(), data, "output").norms) == 2


def test_means_of_classes_and_clients() -> None:
    correct, labels = np.array([True, False, True, True]), np.array([2, 0, 0, 2])
    np.testing.assert_array_equal(mean_of_classes(correct, labels, 4), [0.5, np.nan, 1, np.nan])
    split = [np.array([0, 1]), np.array([3, 3, 1]), np.array([], dtype=np.int64)]
    np.testing.assert_array_equal(mean_of_clients(correct, split), [0.5, 2 / 3, np.nan])
    np.testing.assert_allclose(label_shares(labels, split, 3), [[0.5, 0, 0.5], [1 / 3, 0, 2 / 3], [0, 0, 0]])


def test_expected_accuracy_weights_classes_by_the_client() -> None:
    """Class 1 is missing from the test set: the other shares are scaled up."""
    shares = np.array([[0.25, 0, 0.75], [0.2, 0.5, 0.3], [0, 1, 0]])
    np.testing.assert_allclose(expected_of_clients(np.array([0.4, np.nan, 0.8]), shares), [0.7, 0.64, np.nan])


@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    classes=st.integers(2, 5),
    seed=st.integers(0, 1000),
)
def test_clients_that_share_the_images_have_the_whole_in_the_mean(sizes: list[int], classes: int, seed: int) -> None:
    """By n_i / n weights: the accuracies on own images give that on all, and so do classes, and expected ones."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    labels, correct = rng.integers(classes, size=n), rng.random(n) < 0.5
    split = np.split(rng.permutation(n), np.cumsum(sizes)[:-1])
    weights = np.array(sizes) / n
    assert weights @ mean_of_clients(correct, split) == pytest.approx(correct.mean())
    of_classes = mean_of_classes(correct, labels, classes)
    assert np.nansum(of_classes * np.bincount(labels, minlength=classes)) / n == pytest.approx(correct.mean())
    shares = label_shares(labels, split, classes)
    assert weights @ expected_of_clients(of_classes, shares) == pytest.approx(correct.mean())


def test_summary_is_of_the_clients_that_have_images() -> None:
    assert summary(np.array([50.0, np.nan, 90.0, 70.0])) == {
        "mean": 70, "deviation": pytest.approx((800 / 3) ** 0.5), "worst": 50, "best": 90,
    }  # fmt: skip


def test_what_a_mean_leaves_out_is_said() -> None:
    """Class 1 is missing from the test set: 0, 50 and 100 % of the clients' images; class 3 nobody has."""
    shares = np.array([[0.25, 0, 0.75, 0], [0.2, 0.5, 0.3, 0], [0, 1, 0, 0]])
    assert untested_classes(np.array([0.4, np.nan, 0.8, np.nan]), shares) == (
        "without class 1, which no test image has: 50.0 % of a client's images on average, at most 100.0 %"
    )
    assert untested_classes(np.array([0.4, 0.5, 0.8, np.nan]), shares) == ""
    assert over_how_many(np.array([1, np.nan, 2.0]), "clients") == "2 of 3 clients"
    assert over_how_many(np.array([1, 2.0]), "clients") == "2 clients"
    assert all(map(np.isnan, summary(np.array([np.nan])).values()))


@pytest.fixture(scope="module")
def untested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three clients with one class each, of which the test set lacks the last one."""
    folder, rng = tmp_path_factory.mktemp("untested"), np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 8)
    x = rng.normal(size=(24, 4)).astype(np.float32) + y[:, None]
    kept = np.flatnonzero(y < 2)
    np.savez(folder / "three.npz", x_train=x, y_train=y, x_test=x[kept], y_test=y[kept])
    (folder / "mine.yaml").write_text(
        "{name: mine, extends: quick, dataset: three.npz, model: mlp, methods: {fedavg: {}}, grid: {seeds: [0], "
        "partition: [{name: pathological, clients: 3, classes_per_client: 1}], participation: [{active: 3}]}, "
        "training: {rounds: 1, local_steps: 2, batch_size: 4, lr: 0.1}, evaluation: {snapshot_every: 1}}",
        encoding="utf-8",
    )
    [cell] = load_experiment(str(folder / "mine.yaml")).cells().values()
    train_cell("mine", cell, folder / "runs", CPU, str)
    return folder / "runs"


def test_means_over_clients_say_over_how_many(untested: Path, tmp_path: Path) -> None:
    rows = analysed("clients", untested, tmp_path / "x.csv")
    of_test = rows[rows["metric"] == "client_test_accuracy"]
    assert of_test["value"].isna().sum() == 1
    definitions = rows.set_index("metric")["definition"]
    assert definitions["client_train_accuracy_mean"].startswith("mean over 3 clients of accuracy")
    assert definitions["client_test_accuracy_mean"].startswith("mean over 2 of 3 clients of accuracy")
    assert definitions["client_test_accuracy_mean"].endswith(
        "without class 2, which no test image has: 33.3 % of a client's images on average, at most 100.0 %"
    )
    of_rounds = analysed("client_rounds", untested, tmp_path / "rounds.csv")["definition"]
    assert of_rounds.str.contains(r"classes: test images \(no test image has class 2\), clients").all()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedSAM's two runs of mini, with states after rounds 2 and 4."""
    folder = tmp_path_factory.mktemp("clients") / "runs"
    train_cell("mini", load_experiment(MINI).cell(CELL), folder, CPU, str)
    return folder


def analysed(name: str, runs: Path, out: Path, **options: object) -> pd.DataFrame:
    run_analysis(parse_analysis(name, options), runs, out, CPU, str)
    return pd.read_csv(out)


def test_clients_of_a_run_agree_with_its_own_metrics(runs: Path, tmp_path: Path) -> None:
    table = analysed("clients", runs, tmp_path / "x.csv")
    for seed, rows in table.groupby("seed"):
        run = RunDirectory(stored(runs, seed))
        last, sizes = run.metrics().iloc[-1], np.array([len(own) for own in run.split()])
        own = rows[rows["metric"] == "client_train_accuracy"]
        assert own["client"].tolist() == list(range(20))
        assert sizes @ own["value"] / sizes.sum() == pytest.approx(last["train_accuracy"])
        values = rows.set_index("metric")["value"]
        assert values["client_train_accuracy_worst"] == own["value"].min()
        assert values["client_train_accuracy_deviation"] == pytest.approx(own["value"].std(ddof=0))
        # The test set has as many images of a class as the training set, to one: so have all clients together.
        test = rows.loc[rows["metric"] == "client_test_accuracy", "value"]
        assert sizes @ test / sizes.sum() == pytest.approx(last["test_accuracy"], abs=0.5)


def test_a_split_of_the_test_images_is_a_draw_of_its_own(runs: Path, tmp_path: Path) -> None:
    """The run's kind of partition; the clients share the test images, so that their mean is the global accuracy."""
    table = analysed("clients", runs, tmp_path / "x.csv", test="partition")
    expected = analysed("clients", runs, tmp_path / "expected.csv")
    train = table["metric"].str.contains("train")
    pd.testing.assert_frame_equal(table[train].drop(columns="options"), expected[train].drop(columns="options"))
    assert table.loc[~train, "definition"].str.contains("by dirichlet-0.1 over 20 clients in a draw of its own").all()
    for seed, rows in table.groupby("seed"):
        run = RunDirectory(stored(runs, seed))
        test = rows.loc[rows["metric"] == "client_test_accuracy", "value"]
        n = len(load_dataset(run.config.dataset, data_root()).test)
        sizes = n // 20 + (np.arange(20) < n % 20)
        assert sizes @ test / n == pytest.approx(run.metrics().iloc[-1]["test_accuracy"])
        np.testing.assert_allclose(test * sizes / 100, np.round(test * sizes / 100), atol=1e-9)  # counts of images


def test_personalised_models_are_trained_on_the_clients_own_images(runs: Path, tmp_path: Path) -> None:
    """Two epochs of torch's SGD for one client, written here; without a rate to speak of, nothing changes."""
    rows = analysed("personalised", stored(runs), tmp_path / "x.csv", epochs=2, lr=0.05)
    run = AnalysedRun(RunDirectory(stored(runs, 0)), CPU)
    setup, client = run.setup, 3
    model = copy.deepcopy(setup.objective.load(run.w.clone())).train()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=run.config.training.weight_decay)
    sampler = LocalSteps(None, 2, run.config.training.batch_size).sampler(setup.split, 0)
    for index in sampler(client, run.config.training.rounds):
        x, y = setup.train.batch(index)
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        sgd.step()
    x, y = setup.test.batch(torch.arange(len(setup.test)))
    right = (model.eval()(x).argmax(1) == y).double()
    of_classes = np.array([float(right[y == c].mean()) for c in range(10)])
    counts = np.bincount(setup.dataset.train.labels[setup.split[client]], minlength=10)
    own = rows[rows["metric"] == "personalised_accuracy"].set_index("client")["value"]
    assert own[client] == pytest.approx(100 * counts @ of_classes / counts.sum(), abs=1e-3)
    before = analysed("clients", stored(runs), tmp_path / "before.csv")
    before = before[before["metric"] == "client_test_accuracy"].set_index("client")["value"]
    gain = rows.loc[rows["metric"] == "personalisation_gain", "value"].item()
    assert gain == pytest.approx((own - before).mean())
    assert gain > 1, "clients have few classes each"
    still = analysed("personalised", stored(runs), tmp_path / "still.csv", steps=1, lr=1e-12)
    assert still.loc[still["metric"] == "personalisation_gain", "value"].item() == pytest.approx(0, abs=1e-9)


def test_personalised_models_need_a_test_part_for_each_client(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"test divides the test images among 7 clients, but the run has 20"):
        analysed("personalised", runs, tmp_path / "x.csv", test={"name": "iid", "clients": 7})


def test_all_methods_of_a_seed_are_tested_on_the_same_split(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draw depends on the seed only, and differs from that of the training images."""
    splits: list[tuple[int, list[list[int]]]] = []
    split = Partition.split

    def seen(partition: Partition, samples: Samples, stream: np.random.Generator) -> list[Indices]:
        found = split(partition, samples, stream)
        splits.append((len(samples), [indices.tolist() for indices in found]))
        return found

    train_cell("mini", load_experiment(MINI).cell(CELL.replace("fedsam", "fedavg")), tmp_path / "runs", CPU, str)
    monkeypatch.setattr(Partition, "split", seen)
    for folder in (runs, tmp_path / "runs"):
        analysed("clients", folder, tmp_path / "x.csv", test={"name": "iid", "clients": 20})
    of_seed = [found for n, found in splits]
    assert of_seed[:2] == of_seed[2:] and of_seed[0] != of_seed[1]
    training = IID(clients=20).split(_first_images(runs, splits[0][0]), numpy_stream(0, "partition"))
    assert of_seed[0] != [indices.tolist() for indices in training]


def _first_images(runs: Path, n: int) -> Samples:
    return load_dataset(RunDirectory(stored(runs)).config.dataset, data_root()).train[slice(n)]


def test_iid_test_images_leave_the_noise_of_drawing_them() -> None:
    """With accuracy p and n images per client, σ over clients is near √(p(1 − p)/n): Qu et al. print such values."""
    p, clients, n = 0.8, 1000, 100
    labels = np.zeros(clients * n, dtype=np.int64)
    samples = Samples(np.zeros((len(labels), 1, 1, 1), np.uint8), labels)
    split = IID(clients=clients).split(samples, numpy_stream(0, "validation-partition"))
    correct = np.random.default_rng(0).random(len(labels)) < p
    assert summary(mean_of_clients(correct, split))["deviation"] == pytest.approx((p * (1 - p) / n) ** 0.5, rel=0.1)


@pytest.mark.parametrize(
    ("test", "says"),
    [
        ("half", "test = 'half' (allowed: expected, partition, or a partition like {name: iid, clients: 100})"),
        (True, "allowed: expected, partition"),
        ({"name": "idd", "clients": 3}, "unknown partition in test 'idd'; did you mean 'iid'?"),
        ({"clients": 3}, "unknown partition in test"),
        ({"name": "iid"}, "test: iid: clients is missing"),
        ({"name": "from_file", "file": "x.csv"}, "from_file lists training images"),
    ],
)
def test_other_splits_of_the_test_images_are_refused(test: object, says: str) -> None:
    with pytest.raises(UserError) as error:
        parse_analysis("clients", {"test": test})
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_run_from_a_file_of_training_images_has_no_partition_for_test_images(tmp_path: Path) -> None:
    file = tmp_path / "split.csv"
    file.write_text("client,index\n" + "".join(f"{i % 20},{i}\n" for i in range(200)))
    changes = {"grid.partition": [{"name": "from_file", "file": str(file)}], "grid.seeds": [0]}
    cell = next(cell for path, cell in load_experiment(MINI, changes).cells().items() if path.endswith("fedsam"))
    train_cell("mini", cell, tmp_path / "runs", CPU, str)
    with pytest.raises(UserError, match="from_file lists training images"):
        analysed("clients", tmp_path / "runs", tmp_path / "x.csv", test="partition")


def test_rounds_agree_with_the_metrics_of_these_rounds(runs: Path, tmp_path: Path) -> None:
    table = analysed("client_rounds", stored(runs), tmp_path / "x.csv")
    run = RunDirectory(stored(runs))
    metrics, sizes = run.metrics().set_index("round"), np.array([len(own) for own in run.split()])
    assert sorted(table["round"].unique()) == [2, 4]
    for finished, rows in table.groupby("round"):
        of_clients = rows[rows["group"] == "client"]
        train = sizes @ of_clients["accuracy"] / sizes.sum()
        assert train == pytest.approx(metrics.loc[finished, "train_accuracy"])
        of_classes = rows[rows["group"] == "class"]
        assert of_classes["number"].tolist() == list(range(10))
        assert of_classes["accuracy"].mean() == pytest.approx(metrics.loc[finished, "test_accuracy"], abs=0.5)
        assert (rows["feature_norm"] > 0).all()


@pytest.mark.parametrize("name", ["clients", "client_rounds", "corruptions"])
def test_answers_do_not_depend_on_the_batch_size(
    name: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does any of them hold more than a batch at once."""
    whole = analysed(name, stored(runs), tmp_path / "whole.csv")
    monkeypatch.setattr("fedflat.bench.training.run_setup.EVALUATION_BATCH", {"cpu": 37})
    passed: list[int] = []
    forward = Objective.logits

    def watched(objective: Objective, w: Tensor, x: Tensor, batch_size: int = 2000) -> Tensor:
        passed.append(len(x))
        return forward(objective, w, x, batch_size)

    monkeypatch.setattr(Objective, "logits", watched)
    small = analysed(name, stored(runs), tmp_path / "small.csv")
    pd.testing.assert_frame_equal(small, whole, rtol=1e-5, atol=1e-9)
    assert max(passed) == 37 < sum(passed)


def test_missing_states_are_reported(tmp_path: Path) -> None:
    changes = {"evaluation.snapshot_every": None, "grid.seeds": [0]}
    train_cell("mini", load_experiment(MINI, changes).cell(CELL), tmp_path / "runs", CPU, str)
    with pytest.raises(UserError, match="client_rounds needs stored states"):
        analysed("client_rounds", tmp_path / "runs", tmp_path / "x.csv")
    assert len(analysed("clients", tmp_path / "runs", tmp_path / "x.csv"))


def test_equal_runs_give_equal_bytes(runs: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(runs, tmp_path / "copy"))
    for name in ("clients", "client_rounds", "corruptions", "cost", "convergence"):
        for folder, out in ((runs, "a.csv"), (copied, "b.csv")):
            analysed(name, folder, tmp_path / out)
        assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes(), name
