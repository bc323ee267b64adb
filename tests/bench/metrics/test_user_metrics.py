"""Metrics of users, as functions, classes and files: their numbers, their words, and mistakes in one line."""

import numpy as np
import pytest
import torch

import fedflat
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.experiments.sections.evaluation import Evaluation
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics import metrics_of
from fedflat.bench.metrics.columns import metric_column
from fedflat.bench.metrics.evaluation import evaluate
from fedflat.bench.metrics.user_metric import kind_of
from fedflat.evaluation import OfConfusion, metric


@metric("share of high scores", better="higher", unit="%")
def high_scores(scores, labels):
    return 100 * np.mean(np.asarray(scores) > 0)


def best_client(accuracies):
    return max(accuracies)


class MostConfused(OfConfusion):
    better = "lower"

    def of(self, counts):
        return (counts - torch.diag(counts.diagonal())).max()


SCORES, LABELS = torch.tensor([[1.0, -1.0], [2.0, 1.0], [-1.0, -2.0]]), torch.tensor([0, 1, 1])


def test_functions_and_classes_are_metrics_with_words():
    kinds = [kind_of(one) for one in (high_scores, best_client, MostConfused)]
    found = evaluate(lambda x: x, [(SCORES, LABELS)], metrics_of(kinds, label_maps=False), np.eye(2))
    assert found["high_scores"] == pytest.approx(50)
    assert (found["best_client"], found["most_confused"]) == (100, 2)
    assert metric_column("test_high_scores").with_unit == "test share of high scores (%)"
    assert metric_column("test_best_client").title == "test best client"
    assert metric_column("test_best_client").better == "none"
    assert metric_column("train_most_confused").better == "lower"


def test_a_name_of_fedflats_metrics_gives_a_column_of_its_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def worst_client(accuracies):\n    return -min(accuracies)\n", encoding="utf-8")
    trust(file.read_bytes())
    metrics = Evaluation.parse({"metrics": ["worst_client", f"{file}:worst_client"]}).judged_by(label_maps=False)
    found = evaluate(lambda x: x, [(SCORES, LABELS)], metrics, np.array([[1, 0], [0.5, 0.5]]))
    assert (found["worst_client"], found["own_worst_client"]) == (50, -50)
    assert metric_column("test_worst_client").title == "test accuracy of the worst client"
    assert metric_column("test_own_worst_client").title == "test own worst client"


def test_a_simulation_takes_them_and_ends_when_it_is_told(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def lowest(accuracies):\n    return min(accuracies)\n", encoding="utf-8")
    x, y = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 2)
    result = fedflat.simulate(
        "fedavg", model, [(x[:20], y[:20]), (x[20:], y[20:])], rounds=9, local_steps=1, lr=0.1,
        test=(x, y), metrics=[high_scores, f"{file}:lowest"], on_round=lambda row: row["round"] == 3, progress=False,
    )  # fmt: skip
    assert result.history["round"].tolist() == [1, 2, 3]
    assert result.history["test_lowest"].between(0, 100).all()
    last = 100 * (result.model(x) > 0).float().mean()
    assert result.history["test_high_scores"].iloc[-1] == pytest.approx(float(last))


MISTAKES = {
    "def f(a, b, c): ...": r"the function f has the arguments \(a, b, c\)",
    "class f: ...": "f is no metric",
    "from fedflat.evaluation import OfClients\nclass f(OfClients): ...": "it lacks of",
    "def f(accuracies): ...\nf.better = 'up'": "better of the metric f = 'up' .*higher, lower, none",
    "def g(accuracies): ...": "unknown function of the metric file .*'f'",
    "1 / 0": "fails in line 1: ZeroDivisionError",
}


@pytest.mark.parametrize("code", MISTAKES)
def test_mistakes_are_one_line_before_a_run(code, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(code, encoding="utf-8")
    trust(file.read_bytes())
    with pytest.raises(UserError, match=MISTAKES[code]) as caught:
        Evaluation.parse({"metrics": ["macro_f1", f"{file}:f"]})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("metrics", ["macro_f1", [3]])
def test_other_lists_are_refused(metrics):
    with pytest.raises(UserError, match="a list of names and of your own"):
        Evaluation.parse({"metrics": metrics})


def test_a_metric_that_gives_no_number_is_named():
    def names(accuracies):
        return ["a"]

    with pytest.raises(UserError, match="the metric 'names' returns list, which is no number"):
        evaluate(lambda x: x, [(SCORES, LABELS)], metrics_of([kind_of(names)], label_maps=False), np.eye(2))
