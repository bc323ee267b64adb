"""Trials of one search, trained together in one cohort up to a round."""

import pytest
import torch

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.training.same_cohort import differ_in_seed_only, same_cohort
from fedflat.bench.training.unfinished import train_to

CPU = torch.device("cpu")
BY_ROW = {"engine.backend": "cohort", "engine.seeds": "together", "engine.values": "by_row"}


def trial(method: str = "fedspeed", seed: int = 0, **changes) -> RunConfig:
    values = {"training.rounds": 3, "training.local_epochs": 1, **BY_ROW, **changes}
    cell = load_experiment("quick_catalog", values).cell(f"digits/dirichlet-0.1/4-of-20/{method}")
    return cell.runs[seed]


def of_fedspeed(**values) -> dict:
    return {f"methods.fedspeed.hyperparameters.{name}": value for name, value in values.items()}


TRIALS = [
    {},
    {"training.lr": 0.03, "training.weight_decay": 0.01, **of_fedspeed(rho=0.2)},
    {"training.lr_decay": 0.9, **of_fedspeed(rho=0.0, lam=0.01)},
]
"""Changes of three trials."""


def rows(trained) -> list[list[dict]]:
    return [one.rows for one in trained]


def test_trials_have_the_same_rows_together_and_alone_and_after_one_was_behind(tmp_path):
    configs = [trial(**changes) for changes in TRIALS]
    together = train_to(configs, [tmp_path / f"together-{k}" for k in range(3)], 3, CPU)
    alone = [train_to([one], [tmp_path / f"alone-{k}"], 3, CPU)[0] for k, one in enumerate(configs)]
    assert rows(together) == rows(alone)
    assert len({one.rows[-1]["local_loss"] for one in together}) == 3
    assert all(one.cpu_seconds > 0 for one in together)
    folders = [tmp_path / f"behind-{k}" for k in range(3)]
    train_to(configs[1:2], folders[1:2], 1, CPU)
    train_to(configs[2:], folders[2:], 3, CPU)
    assert rows(train_to(configs, folders, 3, CPU)) == rows(together)
    assert rows(train_to(configs, folders, 3, CPU)) == rows(together), "nothing is left to train"


@pytest.mark.parametrize("engine", [{"engine.values": "fixed"}, {"engine.backend": "loop"}, {"engine.seeds": "apart"}])
def test_trials_that_cannot_share_a_cohort_are_trained_one_by_one(tmp_path, engine):
    """Without values by row, all would be trained with the first one's values."""
    configs = [trial(**changes, **{"training.rounds": 1, **engine}) for changes in TRIALS]
    together = train_to(configs, [tmp_path / f"together-{k}" for k in range(3)], 1, CPU)
    alone = [train_to([one], [tmp_path / f"alone-{k}"], 1, CPU)[0] for k, one in enumerate(configs)]
    assert rows(together) == rows(alone)


SWA = {"cycle": 1, "start": 0}


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ({"seed": 1}, True),
        *((changes, True) for changes in TRIALS[1:]),
        (of_fedspeed(swa=SWA), True),
        ({"training.lr_decay": 0.9, "engine.values": "fixed"}, True),
        (of_fedspeed(alpha=0.5), False),
        (of_fedspeed(server_dual="active"), False),
        ({"training.local_epochs": 2}, False),
        ({"training.clip": 1}, False),
        ({"method": "feddyn"}, False),
    ],
)
def test_runs_of_one_cohort(changes, shared):
    other = trial(**changes)
    assert same_cohort(trial(), other) == same_cohort(other, trial()) == shared


def test_seeds_alone_may_differ_without_values_by_row():
    assert differ_in_seed_only(trial(), trial(seed=2))
    assert not differ_in_seed_only(trial(), trial(**TRIALS[1]))
    assert differ_in_seed_only(trial(), trial(**{"engine.backend": "loop"}))
