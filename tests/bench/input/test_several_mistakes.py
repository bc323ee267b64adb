"""All mistakes of an input are listed at once, each in one line; a single one is one line."""

from pathlib import Path

import pytest

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import SeveralMistakesError, UserError

WRONG = """
name: wrong
extends: quick
trainig: {}
training: {rounds: 0, lr: -1, epoch: 3}
evaluation: {evry: 2, local_models: 7, every: 0}
evaluation_where: {4-of-20: {evrey: 1}, 5-of-20: {every: 0}}
grid:
  seeds: [3, 3]
  partition: [{name: dirichlet, alpha: -1, clients: 0}, {name: dirichlett, clients: 3}]
methods:
  fedavg: {}
  fedsamm: {}
  fedsam: {hyperparameters: {rho: -0.1}}
  feddyn: {hyperparameters: {lamb: 3}}
  fedavgm: {hyperparameters: {beta: 0.9}, training: {lrr: 1, lr: 0}}
  fedprox: {hyperparameters: {lam: 0.1}, where: {iid: {hyperparameters: {lam: -1}, training: {clip: x}}}}
"""
FOUND = (
    "unknown key of an experiment 'trainig'; did you mean 'training'?",
    "unknown key of training 'epoch'",
    "unknown key of evaluation 'evry'; did you mean 'every'?",
    "training.rounds = 0: Input should be greater than or equal to 1",
    "training.lr = -1: Input should be greater than 0",
    "local_models = 7 (allowed: a list of rounds",
    "evaluation.every = 0: Input should be",
    "evaluation_where: 4-of-20: unknown key of evaluation 'evrey'",
    "evaluation_where: 5-of-20: every = 0: Input should be",
    "seed 3 is listed twice in seeds",
    "grid.partition.0.dirichlet.clients = 0: Input should be",
    "grid.partition.0.dirichlet.alpha = -1: Input should be",
    "unknown grid.partition.1 'dirichlett'; did you mean 'dirichlet'?",
    "unknown method 'fedsamm'; did you mean 'fedsam'?",
    "fedsam: rho = -0.1: Input should be",
    "unknown hyper-parameter of feddyn 'lamb'; did you mean 'lam'?",
    "methods.fedavgm.training: unknown key of training 'lrr'; did you mean 'lr'?",
    "methods.fedavgm.training: lr = 0: Input should be",
    "methods.fedprox.where.iid.training: clip = 'x': Input should be",
    "fedprox: lam = -1: Input should be",
)


def test_every_section_of_a_file_and_every_method_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG, encoding="utf-8")
    with pytest.raises(SeveralMistakesError) as error:
        load_experiment(str(file))
    first, *lines = str(error.value).splitlines()
    assert first == f"{file}: {len(FOUND)} problems"
    for text in FOUND:
        assert sum(line.startswith(f"  {text}") for line in lines) == 1, text
    assert len(lines) == len(FOUND)


def test_mistakes_that_only_show_in_cells_are_listed_once_for_each_method(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    methods = "{fedavg: {training: {lr: 0}}, fedsam: {hyperparameters: {rho: -1}}, feddyn: {}}"
    file.write_text(f"name: wrong\nextends: quick\nmethods: {methods}\n", encoding="utf-8")
    with pytest.raises(SeveralMistakesError, match=r"^experiment wrong: 2 problems\n") as error:
        load_experiment(str(file)).cells()
    assert len(error.value.mistakes) == 2, "feddyn has the values of quick, and each mistake is named once"


def test_one_mistake_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("name: wrong\nextends: quick\ntraining: {lr: -1}\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"^{file}: training.lr = -1: Input should be greater than 0 .initial local"):
        load_experiment(str(file))


def test_a_value_that_fits_no_type_of_several_is_one_mistake(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("name: wrong\nextends: quick\ndataset: [1]\n", encoding="utf-8")
    with pytest.raises(UserError) as error:
        load_experiment(str(file))
    assert "\n" not in str(error.value)
