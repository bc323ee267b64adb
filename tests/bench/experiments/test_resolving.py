"""Precedence: every layer overrides the ones before it."""

from pathlib import Path
from typing import Any

import yaml

from bench.experiments.experiment import load_experiment
from bench.experiments.resolving import CELL_LAYERS, FILE_LAYERS

BASE: dict[str, Any] = {
    "name": "base",
    "dataset": "digits",
    "model": "cnn_gn",
    "training": {"rounds": 9, "local_epochs": 1, "batch_size": 8, "lr": 0.1, "lr_decay": 0.9, "clip": 5.0},
    "grid": {
        "partition": [{"name": "iid", "clients": 20}, {"name": "dirichlet", "alpha": 0.1, "clients": 20}],
        "participation": [{"active": 4}],
        "seeds": [0, 1],
    },
    "methods": {"fedsam": {"hyperparameters": {"rho": 0.1}, "training": {"weight_decay": 0.1}}},
}
EXTENDING: dict[str, Any] = {
    "name": "mine",
    "extends": "base.yaml",
    "training": {"lr": 0.2},
    "methods": {"fedsam": {"where": {"iid": {"hyperparameters": {"rho": 0.4}}}}},
    "parts": {
        "plain": {},
        "other": {"training": {"lr": 0.3, "rounds": 7}, "methods": {"fedsam": {"hyperparameters": {"rho": 0.2}}}},
    },
}


def run(folder: Path, overrides: dict[str, Any] | None = None, part: str = "other", partition: str = "iid") -> Any:
    for data in (BASE, EXTENDING):
        (folder / f"{data['name'].replace('mine', 'experiments')}.yaml").write_text(
            yaml.safe_dump(data), encoding="utf-8"
        )
    experiment = load_experiment(str(folder / "experiments.yaml"), overrides)
    return experiment.cell(f"{part}/{partition}/4-of-20/fedsam").runs[0]


def test_a_file_overrides_single_values_of_the_file_it_extends(tmp_path: Path) -> None:
    training = run(tmp_path, part="plain").training
    assert (training.lr, training.lr_decay, training.weight_decay) == (0.2, 0.9, 0.1)


def test_a_part_overrides_the_experiment_and_a_partition_the_part(tmp_path: Path) -> None:
    assert run(tmp_path).training.lr == 0.3
    assert run(tmp_path, partition="dirichlet-0.1").method.hyperparameters["rho"] == 0.2
    assert run(tmp_path).method.hyperparameters["rho"] == 0.4


def test_an_override_of_the_command_line_is_a_value_of_the_experiment_which_parts_override(tmp_path: Path) -> None:
    overrides = {"training.lr": 0.5}
    assert run(tmp_path, overrides, part="plain").training.lr == 0.5
    assert run(tmp_path, overrides).training.lr == 0.3


def test_rounds_and_seeds_of_the_command_line_hold_everywhere(tmp_path: Path) -> None:
    overriding = run(tmp_path, {"training.rounds": 3, "grid.seeds": [5]})
    assert (overriding.training.rounds, overriding.seed) == (3, 5)


def test_smoke_scale_comes_last_but_for_the_rounds_that_are_given(tmp_path: Path) -> None:
    assert run(tmp_path, {"scale": "smoke"}).training.rounds == 8
    assert run(tmp_path, {"scale": "smoke", "training.rounds": 3}).training.rounds == 3
    assert run(tmp_path, {"scale": "smoke", "model": "lenet"}).model.name == "cnn_gn"


def test_layers_are_in_the_documented_order() -> None:
    assert [layer.__name__ for layer in (*FILE_LAYERS, *CELL_LAYERS)] == [
        "_scale", "_overrides",
        "_sections", "_released_code", "_method_entry", "_where", "_released_faults", "_smoke_scale",
    ]  # fmt: skip
