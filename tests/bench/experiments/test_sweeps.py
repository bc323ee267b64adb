"""Lists of values: one method for each, with the identity of the same method with this single value."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fedflat.bench.experiments.address import CellAddress, Setting
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.files import PAPER_TABLES
from fedflat.bench.input.errors import UserError

QUICK = yaml.safe_load((PAPER_TABLES / "quick" / "experiments.yaml").read_text(encoding="utf-8"))
PLACE = Setting("digits", "dirichlet-0.1", "4-of-20")


def experiment(
    folder: Path, methods: dict[str, Any], overrides: dict[str, Any] | None = None, **keys: Any
) -> Experiment:
    """Quick with other methods and keys."""
    (folder / "own.yaml").write_text(yaml.safe_dump({**QUICK, "name": "own", **keys, "methods": methods}), "utf-8")
    return load_experiment(str(folder / "own.yaml"), overrides)


def identity(found: Experiment, method: str) -> str:
    return found.cell(CellAddress(PLACE, method).path).identity


def test_each_value_is_a_method_with_the_identity_of_this_single_value(tmp_path: Path) -> None:
    swept = experiment(tmp_path, {"fedavg": {}, "fedsam": {"hyperparameters": {"rho": [0.01, 1e-5, 1]}}})
    assert list(swept.methods) == ["fedavg", "fedsam-rho-0.01", "fedsam-rho-1e-05", "fedsam-rho-1"]
    assert swept.labels_of("fedsam") == list(swept.methods)[1:]
    for rho in (0.01, 1e-5, 1):
        single = experiment(tmp_path, {"fedsam": {"hyperparameters": {"rho": rho}}})
        assert identity(swept, f"fedsam-rho-{rho}") == identity(single, "fedsam")


def test_lists_of_several_keys_give_all_combinations(tmp_path: Path) -> None:
    entry = {"hyperparameters": {"rho": [0.1, 0.2], "swa": {"cycle": 5}}, "training": {"lr": [0.03, 0.1]}}
    swept = experiment(tmp_path, {"fedsam+swa": entry})
    assert list(swept.methods) == [f"fedsam-rho-{rho}-lr-{lr}+swa" for rho in (0.1, 0.2) for lr in (0.03, 0.1)]
    run = swept.cell(CellAddress(PLACE, "fedsam-rho-0.2-lr-0.03+swa").path).runs[0]
    assert (run.method.hyperparameters["rho"], run.training.lr) == (0.2, 0.03)


def test_a_list_in_the_training_of_all_sweeps_the_methods_without_a_value_of_their_own(tmp_path: Path) -> None:
    training = {**QUICK["training"], "lr": [0.03, 0.1]}
    swept = experiment(tmp_path, {"fedavg": {}, "fedgf": QUICK["methods"]["fedgf"]}, training=training)
    assert list(swept.methods) == ["fedavg-lr-0.03", "fedavg-lr-0.1", "fedgf"]
    single = load_experiment("quick")
    assert identity(swept, "fedavg-lr-0.1") == identity(single, "fedavg")
    assert identity(swept, "fedgf") == identity(single, "fedgf")


def test_a_method_with_epochs_of_its_own_is_not_swept_over_steps(tmp_path: Path) -> None:
    training = {**QUICK["training"], "local_steps": [5, 10]}
    del training["local_epochs"]
    methods = {"fedavg": {}, "fedprox": {"hyperparameters": {"lam": 0.1}, "training": {"local_epochs": 2}}}
    swept = experiment(tmp_path, methods, training=training)
    assert list(swept.methods) == ["fedavg-local_steps-5", "fedavg-local_steps-10", "fedprox"]
    found = {cell.address.method: cell.runs[0].training for cell in swept.cells().values()}
    assert {label: (one.local_epochs, one.local_steps) for label, one in found.items()} == {
        "fedavg-local_steps-5": (None, 5), "fedavg-local_steps-10": (None, 10), "fedprox": (2, None)
    }  # fmt: skip


def test_a_list_for_all_is_no_mistake_if_each_method_has_its_own_value(tmp_path: Path) -> None:
    training = {**QUICK["training"], "lr": [0.1, 0.2]}
    found = experiment(tmp_path, {"fedavg": {"training": {"lr": 0.3}}}, training=training)
    assert list(found.methods) == ["fedavg"]
    assert found.cell(CellAddress(PLACE, "fedavg").path).runs[0].training.lr == 0.3


def test_labels_are_those_of_the_values_that_runs_have(tmp_path: Path) -> None:
    """1e-2 is text in YAML; 1.0 is the same number as 1."""
    given = {"hyperparameters": {"rho": ["1e-2", 1.0, "0.10"]}, "training": {"local_momentum": [0, 0.5]}}
    swept = experiment(tmp_path, {"fedsam": given})
    labels = [f"fedsam-rho-{rho}-local_momentum-{mu}" for rho in ("0.01", "1", "0.1") for mu in ("0", "0.5")]
    assert list(swept.methods) == labels
    single = experiment(tmp_path, {"fedsam": {"hyperparameters": {"rho": 0.01}}})
    assert identity(swept, labels[0]) == identity(single, "fedsam")


@pytest.mark.parametrize(
    ("change", "overrides"),
    [
        ({"where": {"dirichlet-0.6": {"hyperparameters": {"rho": 0.7}}}}, {}),
        ({}, {"methods.fedsam.where.dirichlet-0.6.hyperparameters.rho": 0.7}),
        ({"parts": {"a": {}, "b": {"methods": {"fedsam": {"hyperparameters": {"rho": 0.7}}}}}}, {}),
        ({"parts": {"a": {}, "b": {}}}, {"parts.b.methods.fedsam.hyperparameters.rho": 0.7}),
        ({"training": {"lr": [0.1, 0.2]}, "parts": {"a": {}, "b": {}}}, {"parts.b.training.lr": 0.7}),
        ({"variant": "released:fl_simulator", "training": {"lr": [0.1, 0.2]},
          "where": {"dirichlet-0.1": {"training": {"lr": 0.3}}}}, {}),
    ],
)  # fmt: skip
def test_a_more_specific_value_than_a_list_is_a_mistake(
    change: dict[str, Any], overrides: dict[str, Any], tmp_path: Path
) -> None:
    """It would have no effect, or labels of methods would name values that their runs do not have."""
    change = dict(change)
    parts = change.pop("parts", {})
    entry = {"hyperparameters": {"rho": [0.1, 0.2]}, **change}
    with pytest.raises(UserError, match=r"fedsam: (rho|lr) has a list of values, and the value 0\.[37] in a more"):
        experiment(tmp_path, {"fedavg": {}, "fedsam": entry}, overrides, parts=parts).cells()


@pytest.mark.parametrize("of_part", [{"lr": 0.01}, {"local_steps": 3}])
def test_a_value_of_a_part_below_a_list_for_all_is_one_line(of_part: dict[str, Any], tmp_path: Path) -> None:
    training = {**QUICK["training"], "lr": [0.1, 0.2], "local_epochs": [1, 2]}
    parts = {"a": {}, "b": {"training": of_part}}
    with pytest.raises(UserError, match=r"training\.(lr|local_epochs) has a list of values, and parts\.b\.training"):
        experiment(tmp_path, {"fedavg": {}}, training=training, parts=parts)
    own = {"training": {"lr": [0.3, 0.4], "local_epochs": 1}}
    swept = experiment(tmp_path, {"fedavg": own}, training=training, parts=parts)
    assert {cell.runs[0].training.lr for cell in swept.cells().values()} == {0.3, 0.4}


def test_values_that_are_lists_by_themselves_are_no_sweeps(tmp_path: Path) -> None:
    training = {**QUICK["training"], "augmentation": ["mixup"]}
    evaluation = {"every": 2, "local_models": [5, 10]}
    found = experiment(tmp_path, {"fedavg": {}}, training=training, evaluation=evaluation)
    assert list(found.methods) == ["fedavg"]
    run = found.cell(CellAddress(PLACE, "fedavg").path).runs[0]
    assert run.evaluation.local_models == (5, 10)


def test_keys_of_the_command_line_name_the_whole_sweep(tmp_path: Path) -> None:
    methods = {"fedavg": {}, "fedspeed": {"hyperparameters": {"rho": [0.1, 0.2], "lam": 0.1}}}
    key = "methods.fedspeed.hyperparameters"
    for swept in (
        experiment(tmp_path, methods, {f"{key}.lam": 0.5, "chosen": ["fedspeed"]}),
        experiment(tmp_path, {"fedspeed": {"hyperparameters": {"lam": 0.5}}}, {f"{key}.rho": [0.1, 0.2]}),
    ):
        cells = [cell for cell in swept.cells().values() if cell.address.setting == PLACE]
        values = [cell.runs[0].method.hyperparameters for cell in cells]
        assert [(one["rho"], one["lam"]) for one in values] == [(0.1, 0.5), (0.2, 0.5)]
    assert list(experiment(tmp_path, methods, {f"{key}.rho": 0.3}).methods) == ["fedavg", "fedspeed"]


def test_parts_have_the_methods_of_a_sweep(tmp_path: Path) -> None:
    parts = {"a": {"only": ["fedsam"], "methods": {"fedsam": {"training": {"lr": 0.5}}}}, "b": {"only": ["fedavg"]}}
    methods = {"fedavg": {}, "fedsam": {"hyperparameters": {"rho": [0.1, 0.2]}}}
    swept = experiment(tmp_path, methods, parts=parts)
    assert {path.rpartition("/")[2] for path in swept.paths() if path.startswith("a/")} == set(
        swept.labels_of("fedsam")
    )
    assert swept.cell("a/dirichlet-0.1/4-of-20/fedsam-rho-0.2").runs[0].training.lr == 0.5


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"fedsam": {"hyperparameters": {"rho": [0.1, 0.1]}}}, "rho: a value is listed twice"),
        ({"fedsam": {"hyperparameters": {"rho": [1, 1.0]}}}, "rho: a value is listed twice"),
        ({"fedsam": {"hyperparameters": {"rho": [1.0e-05, "1e-5"]}}}, "rho: a value is listed twice"),
        ({"fedsam": {"training": {"local_momentum": [0, None]}}}, "local_momentum: a value is listed twice"),
        ({"fedsam": {"hyperparameters": {"rho": [True, 2]}}}, "rho = True: Input should be a number"),
        ({"fedsam": {"hyperparameters": {"rho": [0.1]}}, "fedsam-rho-0.1": {"name": "fedavg"}}, "have the label"),
        ({"fedsam": {"hyperparameters": {"rho": list(range(2000))}}}, "2,000 combinations of values"),
        ({"fedsam": {"hyperparameters": {"rho": [0.1, -1]}}}, "rho = -1: Input should be greater than or equal to 0"),
        ({"fedsam": {"hyperparameters": {"rho": []}}}, "rho = \\[\\]"),
        ({"fedsam": {"hyperparameters": {"rho": [[1]]}}}, "rho = "),
        ({"fedavg": {"training": {"lr": ["fast"]}}}, "lr = 'fast'"),
    ],
)  # fmt: skip
def test_a_wrong_list_is_one_line(methods: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as error:
        experiment(tmp_path, methods).cells()
    assert "\n" not in str(error.value)
