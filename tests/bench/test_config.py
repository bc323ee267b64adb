"""Configurations: validated, immutable, with an identity that says whether two runs are the same."""

import json
from pathlib import Path

import pytest
import yaml

import bench
from bench.config import Experiment, RunConfig, experiment_file, experiment_schema, load_experiment
from bench.errors import UserError

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"


def run_config(**changes) -> RunConfig:
    return load_experiment("quick", changes).cell(CELL).runs[0]


def test_quick_is_the_stated_grid():
    cells = load_experiment("quick").cells()
    assert len(cells) == 12 * 2 * 2
    assert all([run.seed for run in cell.runs] == [0, 1, 2] for cell in cells.values())
    assert CELL in cells


def test_identity_follows_content_not_spelling():
    config = run_config()
    again = RunConfig.parse(json.loads(config.canonical_json()))
    assert again == config
    assert again.identity == config.identity
    shorthand = RunConfig.parse({**config.model_dump(), "dataset": "digits"})
    assert shorthand.identity == config.identity


def test_every_run_of_the_grid_has_its_own_identity():
    runs = [run for cell in load_experiment("quick").cells().values() for run in cell.runs]
    assert len({run.identity for run in runs}) == len(runs) == 144


@pytest.mark.parametrize(
    "change",
    [
        {"training.rounds": 7},
        {"training.weight_decay": 0.5},
        {"methods.fedsam.hyperparameters.rho": 0.2},
        {"evaluation.every": 1},
        {"grid.seeds": [5]},
    ],
)
def test_identity_changes_with_every_value(change):
    assert run_config(**change).identity != run_config().identity


def test_method_defaults_and_aggregation_are_filled_in():
    lesam = load_experiment("quick").cell("digits/dirichlet-0.1/4-of-20/fedlesam").runs[0]
    assert lesam.method.hyperparameters == {"rho": 0.1, "first_seen": "zero", "estimate": "published"}
    assert lesam.training.aggregation == "uniform"
    assert run_config().training.aggregation == "samples"


def test_a_config_is_immutable():
    with pytest.raises(Exception, match="frozen"):
        run_config().seed = 3


MISTAKES = [
    ({"methods.fedsamm": {}}, "unknown method 'fedsamm'; did you mean 'fedsam'?"),
    ({"dataset": "digit"}, "unknown dataset 'digit'; did you mean 'digits'?"),
    ({"model": "cnn_gm"}, "unknown model 'cnn_gm'; did you mean 'cnn_gn'?"),
    ({"training.round": 3}, "unknown key of Training 'round'; did you mean 'rounds'?"),
    ({"methods.fedsam.hyperparameters.roh": 3}, "unknown hyper-parameter of fedsam 'roh'; did you mean 'rho'?"),
    ({"methods.fedsam.hyperparameters": {}}, "fedsam needs rho"),
    ({"methods.fedsam.hyperparameters.rho": -0.1}, "rho = -0.1: Input should be greater than or equal to 0"),
    ({"methods.mofedsam.hyperparameters.alpha": 1.5}, "alpha = 1.5: Input should be less than or equal to 1"),
    ({"methods.fedlesam.hyperparameters.first_seen": "never"}, "Input should be 'zero' or 'none'"),
    ({"grid.participation": [{"active": 21}]}, "21 active clients per round, but only 20 are registered"),
    ({"grid.participation": [{"sampling": "bernoulli"}]}, "probability with sampling bernoulli"),
    ({"grid.partition": [{"name": "dirichlet", "alpha": 0, "clients": 20}]}, "greater than 0"),
    ({"grid.partition": [{"name": "diriclet", "clients": 20}]}, "did you mean 'dirichlet'?"),
    ({"training.rounds": 0}, "training.rounds = 0: Input should be greater than or equal to 1"),
    ({"training.lr": float("nan")}, "finite number"),
    ({"training.server_lr": 0.5}, "feddyn has no server step size: server_lr must be 1, not 0.5"),
    ({"grid.partition": []}, "at least 1 item"),
    ({"grid.seeds": [1, 0, 1]}, "seed 1 stands twice in seeds"),
    ({"methods.a/b": {"name": "fedavg"}}, "String should match pattern"),
    ({"name.x": 1}, "name is a value, not a section"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES, ids=lambda v: str(v)[:40])
def test_mistakes_are_told_in_one_line(change, message):
    with pytest.raises(UserError) as caught:
        load_experiment("quick", change).cells()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_experiment_that_is_not_yaml_is_one_line(tmp_path):
    (tmp_path / "x.yaml").write_text("a: [1\nb: {")
    with pytest.raises(UserError, match="is not YAML") as caught:
        load_experiment(str(tmp_path / "x.yaml"))
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="cannot read"):
        load_experiment(str(tmp_path / "missing.yaml"))


def test_the_committed_schema_is_the_models_own():
    """Snakemake validates experiments with the schema that the pydantic models generate."""
    committed = json.loads(Path(bench.__file__).with_name("experiment.schema.json").read_text())
    assert committed == experiment_schema(), "run: fedflat schema > bench/experiment.schema.json"


def test_two_labels_of_one_method_are_two_cells():
    data = yaml.safe_load(experiment_file("quick").read_text())
    small = {"name": "fedsam", "hyperparameters": {"rho": 0.01}}
    data["methods"] = {"small": small, "fedsam": data["methods"]["fedsam"]}
    cells = Experiment.model_validate(data).cells()
    assert len(cells) == 8
    assert "digits/dirichlet-0.1/4-of-20/small" in cells
