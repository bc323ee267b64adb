"""Metrics against scikit-learn and sums by hand, for any division into batches; and in a run, by round."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, log_loss, roc_auc_score

import fedflat
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics import METRICS, metrics_of
from fedflat.bench.metrics.columns import metric_column
from fedflat.bench.metrics.evaluation import evaluate
from fedflat.bench.metrics.of_clients import label_shares

CLASSES = 4
FURTHER = [name for name, kind in METRICS.items() if kind.label_maps is not True and not kind.in_every_run]


def drawn(seed: int, n: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores that are right more often than not, and labels."""
    stream = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (n,), generator=stream)
    scores = torch.randn(n, CLASSES, generator=stream, dtype=torch.float64)
    scores[torch.arange(n), y] += 1
    return scores, y


def evaluated(scores, y, sizes, shares=None):
    batches = list(zip(scores.split(sizes), y.split(sizes), strict=True))
    shares = np.eye(CLASSES) if shares is None else shares
    return evaluate(lambda x: x, batches, metrics_of(FURTHER, label_maps=False), shares)


@given(seed=st.integers(0, 10**6), cut=st.integers(1, 39))
def test_metrics_are_those_of_scikit_learn_in_any_batches(seed, cut):
    scores, y = drawn(seed)
    found, true, predicted = evaluated(scores, y, [cut, 40 - cut]), y.numpy(), scores.argmax(1).numpy()
    theirs = {
        "accuracy": 100 * accuracy_score(true, predicted),
        "loss": log_loss(true, scores.softmax(1).numpy(), labels=range(CLASSES)),
        "macro_f1": 100 * f1_score(true, predicted, average="macro"),
        "auc": 100 * roc_auc_score(true, scores.softmax(1).numpy(), multi_class="ovr", labels=range(CLASSES)),
        "balanced_accuracy": 100 * np.mean([(predicted == true)[true == c].mean() for c in np.unique(true)]),
    }
    assert {name: found[name] for name in theirs} == pytest.approx(theirs)
    if set(predicted) <= set(true):  # else scikit-learn warns
        assert found["balanced_accuracy"] == pytest.approx(100 * balanced_accuracy_score(true, predicted))
    assert evaluated(scores, y, 40) == pytest.approx(found)


def test_equal_scores_count_half_in_auc():
    """Of one positive and three negative samples: higher than one, equal to one, lower than one."""
    column = torch.tensor([0.5, 0.2, 0.5, 0.9], dtype=torch.float64)
    scores, y = torch.stack([column, 1 - column], 1).log(), torch.tensor([0, 1, 1, 1])
    found = evaluate(lambda x: x, [(scores, y)], metrics_of(["auc"], label_maps=False))
    assert found["auc"] == pytest.approx(50)
    alone = evaluate(lambda x: x, [(scores[:1], y[:1])], metrics_of(["auc"], label_maps=False))
    assert np.isnan(alone["auc"]), "one class alone has no ranking"


def test_the_calibration_error_of_known_confidences():
    """Two samples with confidence 0.9, of which one is right, and two with 0.6 that are right: (0.8 + 0.8) / 4."""
    probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]], dtype=torch.float64)
    y = torch.tensor([0, 1, 1, 1])
    found = evaluate(lambda x: x, [(probabilities.log(), y)], metrics_of(["calibration_error"], label_maps=False))
    assert found["calibration_error"] == pytest.approx(100 * (0.8 + 0.8) / 4)


def test_clients_are_judged_on_the_classes_that_they_have():
    """Accuracies 1, 0 and 1/2 on three classes; clients with classes 0 alone, 1 and 2 equally, and without images."""
    scores = torch.eye(3, dtype=torch.float64)[[0, 0, 2, 2, 1]]
    y = torch.tensor([0, 0, 1, 2, 2])
    shares = label_shares(np.array([0, 0, 1, 2]), [np.array([0, 1]), np.array([2, 3]), np.array([], dtype=int)], 3)
    names = ["worst_client", "lowest_decile", "client_deviation"]
    found = evaluate(lambda x: x, [(scores, y)], metrics_of(names, label_maps=False), shares)
    assert [found[name] for name in names] == pytest.approx([25, 32.5, 37.5])


@pytest.mark.parametrize(("name", "labels", "message"), [("macro_f2", False, "macro_f1"), ("miou", False, "pixels")])
def test_other_metrics_are_refused(name, labels, message):
    with pytest.raises(UserError, match=message):
        metrics_of([name], label_maps=labels)


def test_columns_have_words():
    assert metric_column("test_accuracy").with_unit == "test accuracy (%)"
    assert metric_column("train_loss").with_unit == "training loss"
    assert metric_column("validation_macro_f1").better == "higher"
    assert metric_column("test_miou_seen").with_unit == "test mIoU of seen domains (%)"
    assert metric_column("client_drift") is None


def linear(inputs: int, classes: int) -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torch.nn.Linear(inputs, classes)


def test_a_simulation_has_the_metrics_that_it_names():
    stream = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 5, generator=stream), torch.arange(60) % 3
    clients = [(x[:20], y[:20]), (x[20:], y[20:])]
    given = {"rounds": 2, "local_steps": 2, "lr": 0.1, "test": (x, y), "progress": False}
    model = linear(5, 3)
    history = fedflat.simulate("fedavg", model, clients, **given, metrics=["macro_f1", "worst_client"]).history
    plain = fedflat.simulate("fedavg", model, clients, **given).history
    assert history[plain.columns].equals(plain)
    assert (history["test_worst_client"] <= history["test_accuracy"] + 5).all(), "clients have nearly equal labels"
    assert history["test_macro_f1"].between(0, 100).all()


@pytest.mark.parametrize(("metrics", "message"), [(["macro"], "macro_f1"), (["macro_f1"], "give test")])
def test_wrong_metrics_of_a_simulation_are_one_line(metrics, message):
    clients = [(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))]
    with pytest.raises(UserError, match=message):
        fedflat.simulate("fedavg", linear(2, 2), clients, rounds=1, local_steps=1, lr=0.1, metrics=metrics)
