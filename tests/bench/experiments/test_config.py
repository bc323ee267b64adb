"""Configurations: validated, immutable, with an identity that says whether two runs are the same."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from fedflat.analysis.figures.kinds.labels import LabelsLayout
from fedflat.bench.experiments.experiment import Experiment, experiment_schema, load_experiment
from fedflat.bench.experiments.files import experiment_file, experiment_names, read_yaml
from fedflat.bench.experiments.resolving import experiment_data
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError

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


def test_partition_and_schedule_files_count_by_their_content(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment = Path("own.yaml")
    experiment.write_text(
        "name: own\nextends: quick\ntraining: {rounds: 2}\nmethods: {fedavg: }\ngrid:\n  seeds: [0]\n"
        "  partition: [{name: from_file, file: data/split.csv, order: {file: data/order.csv}}]\n"
        "  participation: [{sampling: schedule, file: data/who.csv}]\n",
        encoding="utf-8",
    )
    contents = {
        "split.csv": "client,index\n0,1\n1,2\n",
        "order.csv": "label\n4\n",
        "who.csv": "round,client\n0,1\n1,0\n",
    }

    def identity(folder: Path, **changed: str) -> str:
        for name, content in contents.items():
            (folder / "data").mkdir(parents=True, exist_ok=True)
            (folder / "data" / name).write_text(changed.get(name.split(".")[0], content), encoding="utf-8")
        (folder / "own.yaml").write_text(experiment.read_text(encoding="utf-8"), encoding="utf-8")
        (run,) = load_experiment(str(folder / "own.yaml")).cell("digits/file-split/schedule-who-of-2/fedavg").runs
        assert run.partition.file == folder / "data/split.csv", "files are searched in the experiment's folder"
        assert RunConfig.parse(json.loads(run.model_dump_json())).identity == run.identity
        return run.identity

    here = identity(tmp_path / "here")
    assert identity(tmp_path / "there") == here, "the place is no part of it"
    others = [
        identity(tmp_path / "other", **{name: contents[f"{name}.csv"] + "\n"}) for name in ("split", "order", "who")
    ]
    assert len({here, *others}) == 4


def test_a_schedule_that_is_too_short_is_reported_with_the_configuration(tmp_path):
    schedule = tmp_path / "who.csv"
    schedule.write_text("round,client\n0,1\n1,0\n", encoding="utf-8")
    changes = {"grid.participation": [{"sampling": "schedule", "file": str(schedule)}], "training.rounds": 3}
    with pytest.raises(UserError, match=r"who\.csv' has 2 rounds, but training has 3"):
        load_experiment("quick", changes).cell("digits/dirichlet-0.1/schedule-who-of-20/fedsam")


def test_what_is_left_at_its_default_is_no_part_of_an_identity():
    """A second variant of a partition, or a new kind of participation, changes no run that was made before."""
    content = json.loads(run_config().canonical_json())
    assert content["partition"] == {"name": "dirichlet", "clients": 20, "alpha": 0.1}
    assert content["participation"] == {"sampling": "fixed", "active": 4}


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
    ({"training.round": 3}, "unknown key of training 'round'; did you mean 'rounds'?"),
    (
        {"engine": "loop"},
        "engine = 'loop'; did you mean engine.backend = loop? (allowed: a mapping with the keys backend, ",
    ),
    ({"engine.backnd": "loop"}, "unknown key of engine 'backnd'; did you mean 'backend'?"),
    ({"training": 5}, "training = 5 (allowed: a mapping with the keys aggregation, "),
    ({"grid.partition": ["iid"]}, "grid.partition.0 = 'iid' (allowed: a mapping of keys and values)"),
    ({"methods.fedsam.hyperparameters": 5}, "hyperparameters = 5 (allowed: a mapping of keys and values)"),
    ({"methods.fedsam.hyperparameters.roh": 3}, "unknown hyper-parameter of fedsam 'roh'; did you mean 'rho'?"),
    ({"methods.fedsam.hyperparameters": {}}, "fedsam needs rho"),
    ({"methods.fedsam.hyperparameters.rho": -0.1}, "rho = -0.1: Input should be greater than or equal to 0"),
    ({"methods.mofedsam.hyperparameters.alpha": 1.5}, "alpha = 1.5: Input should be less than or equal to 1"),
    ({"methods.fedlesam.hyperparameters.first_seen": "never"}, "Input should be 'zero' or 'none'"),
    ({"grid.participation": [{"active": 21}]}, "21 active clients per round, but only 20 are registered"),
    ({"grid.participation": [{"sampling": "bernoulli"}]}, "probability with sampling: bernoulli"),
    ({"grid.partition": [{"name": "dirichlet", "alpha": 0, "clients": 20}]}, "greater than 0"),
    ({"grid.partition": [{"name": "diriclet", "clients": 20}]}, "did you mean 'dirichlet'?"),
    ({"training.rounds": 0}, "training.rounds = 0: Input should be greater than or equal to 1"),
    ({"training.lr": float("nan")}, "finite number"),
    (
        {"training.server_lr": 0.5, "chosen": ["feddyn"]},
        "feddyn has no server learning rate: server_lr must be 1, not 0.5",
    ),
    ({"grid.partition": []}, "at least 1 entry"),
    ({"grid.seeds": [1, 0, 1]}, "seed 1 is listed twice in seeds"),
    ({"methods.a/b": {"name": "fedavg"}}, "key of methods = 'a/b': allowed are letters, digits, '_', '.', '+' and '-'"),
    ({"name": "Quick run"}, "name = 'Quick run': allowed are lower-case letters, digits and '_'"),
    ({"methods.fedsam.hyperparameters.rho": True}, "fedsam: rho = True: Input should be a number, not true or false"),
    ({"training.lr": True}, "lr = True: Input should be a number"),
    ({"training.clip": False}, "clip = False: Input should be a number"),
    ({"methods.fedsam.training": {"lr": True}}, "lr = True: Input should be a number"),
    ({"evaluation.every": True}, "every = True: Input should be a number"),
    ({"grid.seeds": [True]}, "seeds = [True]: Input should be a number"),
    ({"grid.participation": [{"active": True}]}, "active = True: Input should be a number"),
    ({"dataset": {"name": "image_folder", "root": ""}}, "root is empty"),
    ({"dataset": {"name": "image_folder"}}, "dataset image_folder: root is missing"),
    ({"grid.participation": [{"active": 4}, {"active": 4}]}, "has the setting digits/dirichlet-0.6/4-of-20 twice"),
    ({"name.x": 1}, "name is a value, not a section"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES, ids=lambda v: str(v)[:40])
def test_mistakes_are_reported_in_one_line(change, message):
    with pytest.raises(UserError) as caught:
        load_experiment("quick", change).cells()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cell_is_refused_for_its_own_mistakes_only():
    """FedDyn takes no server learning rate; FedSAM does, and is not held up by it."""
    experiment = load_experiment("quick", {"training.server_lr": 0.5})
    assert experiment.cell(CELL).runs[0].training.server_lr == 0.5
    with pytest.raises(UserError, match="feddyn has no server learning rate"):
        experiment.cell(CELL.replace("fedsam", "feddyn"))
    with pytest.raises(UserError, match="expected DATASET/PARTITION/PARTICIPATION/METHOD, for example digits/"):
        experiment.cell("digits/dirichlet-0.1/4-of-20")
    with pytest.raises(UserError, match=f"unknown cell of experiment quick '{CELL}x'; did you mean '{CELL}'"):
        experiment.cell(CELL + "x")


def test_one_cell_is_that_of_all_cells():
    experiment = load_experiment("quick")
    for path, cell in experiment.cells().items():
        assert cell.path == path
        assert experiment.cell(path) == cell


def test_numbers_may_be_written_as_text_and_switches_are_no_numbers():
    """YAML reads 1e-3 as text."""
    assert run_config(**{"training.lr": "1e-3"}).training.lr == 1e-3
    labels = {"kind": "labels", "title": "t", "caption": "c", "methods": ["fedavg"], "panels": [{}], "numbers": False}
    assert LabelsLayout.parse(labels).numbers is False


DUPLICATES = {
    "experiment": "name: x\ntraining:\n  lr: 1\n  rounds: 3\n  lr: 2\n",
    "in one line": "a: {b: 1, b: 1}\n",
    "quoted": "a: 1\n'a': 2\n",
    "in a list": "a: [{b: 1, c: 2, b: 3}]\n",
}


@pytest.mark.parametrize("text", DUPLICATES.values(), ids=DUPLICATES)
def test_a_key_that_is_given_twice_is_refused(text, tmp_path):
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"x\.yaml' is not YAML: the key '.+' is repeated in one mapping \(line"):
        read_yaml(tmp_path / "x.yaml")


def test_merge_keys_may_override(tmp_path):
    (tmp_path / "x.yaml").write_text("a: &a {b: 1, c: 2}\nd: &d {<<: *a, b: 3}\ne: {<<: *d, c: 4}\n", encoding="utf-8")
    assert read_yaml(tmp_path / "x.yaml") == {"a": {"b": 1, "c": 2}, "d": {"b": 3, "c": 2}, "e": {"b": 3, "c": 4}}


def test_a_file_that_is_not_text_is_one_line(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(UserError, match="is not YAML"):
        read_yaml(tmp_path / "x.yaml")


def test_an_experiment_that_is_not_yaml_is_one_line(tmp_path):
    (tmp_path / "x.yaml").write_text("a: [1\nb: {", encoding="utf-8")
    with pytest.raises(UserError, match="is not YAML") as caught:
        load_experiment(str(tmp_path / "x.yaml"))
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="cannot read"):
        load_experiment(str(tmp_path / "missing.yaml"))


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_conforms_to_the_schema(name):
    validator = Draft202012Validator(experiment_schema())
    assert not list(validator.iter_errors(experiment_data(name)))


def test_the_schema_refuses_unknown_keys():
    data = {**experiment_data("quick"), "method": {}}
    assert not Draft202012Validator(experiment_schema()).is_valid(data)


def test_two_labels_of_one_method_are_two_cells():
    data = yaml.safe_load(experiment_file("quick").read_text(encoding="utf-8"))
    small = {"name": "fedsam", "hyperparameters": {"rho": 0.01}}
    data["methods"] = {"small": small, "fedsam": data["methods"]["fedsam"]}
    cells = Experiment.model_validate(data).cells()
    assert len(cells) == 8
    assert "digits/dirichlet-0.1/4-of-20/small" in cells


def fedavg(changes: dict, method: str = "fedavg"):
    return load_experiment("quick_all", changes).cell(f"digits/dirichlet-0.1/4-of-20/{method}").runs[0]


@pytest.mark.parametrize(
    ("method", "key", "equal"),
    [("fedsam", "rho", [1, 1.0, "1"]), ("fedgf", "W", [3, 3.0, "3"]), ("fedgf", "T_D", [float("inf"), "inf", ".inf"])],
)
def test_equal_values_are_one_identity(method, key, equal):
    runs = [fedavg({f"methods.{method}.hyperparameters.{key}": value}, method) for value in equal[:-1]]
    assert len({run.identity for run in runs}) == 1
    assert RunConfig.parse(json.loads(runs[0].canonical_json())).identity == runs[0].identity


def test_what_has_no_effect_is_no_part_of_a_run():
    without = {"methods.fedsmoo.hyperparameters": {"rho": 0.1, "regulariser": False}}
    given = {"methods.fedsmoo.hyperparameters": {"rho": 0.1, "regulariser": False, "lam": 0.3}}
    assert fedavg(without, "fedsmoo").identity == fedavg(given, "fedsmoo").identity


def test_a_hyperparameter_that_is_null_is_no_part_of_a_run():
    adaptive, null, constant = (
        fedavg({f"methods.fedgf.hyperparameters.{key}": value}, "fedgf")
        for key, value in (("W", 10), ("c", None), ("c", 0.5))
    )
    assert "c" not in adaptive.method.hyperparameters
    assert adaptive.identity == null.identity != constant.identity


def test_batches_that_are_not_dropped_are_no_part_of_a_run():
    dropped, kept = (fedavg({"training.drop_last": value}) for value in (True, False))
    assert kept.identity == fedavg({}).identity != dropped.identity
    assert (dropped.training.local.count(9), kept.training.local.drop_last) == (dropped.training.local.count(8), False)


def test_a_release_on_a_bernoulli_grid_and_the_other_way_round():
    bernoulli = {"grid.participation": [{"sampling": "bernoulli", "probability": 0.2}]}
    experiment = load_experiment("quick", {**bernoulli, "methods.fedgf.variant": "released"})
    run = experiment.cell("digits/dirichlet-0.1/bernoulli-0.2-of-20/fedgf").runs[0]
    assert (run.participation.sampling, run.participation.active) == ("fixed", 4)
    run = fedavg({"methods.fedlesam.variant": "released"}, "fedlesam")
    assert (run.participation.sampling, run.participation.probability) == ("bernoulli", 0.2)


def test_a_fault_of_a_release_holds_whatever_is_given():
    run = fedavg({"methods.feddyn.variant": "released:official_fedgf"}, "feddyn")
    assert run.method.hyperparameters["lam"] == 0


def test_an_extension_changes_single_values(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(
        "name: own\nextends: quick\ntraining: {rounds: 3}\nmethods:\n  fedsam: {variant: released}\n  fedavg:\n",
        encoding="utf-8",
    )
    experiment = load_experiment(str(own))
    run = experiment.cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0]
    assert (run.training.rounds, run.training.lr, run.method.hyperparameters["rho"]) == (3, 0.1, 0.05)
    assert list(experiment.methods) == ["fedsam", "fedavg"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods.fedavg.hyperparameters": {"swa": {"cycle": 1, "start": 99}}}, "swa.start = 99 (allowed: at most"),
        ({"methods.fedavg.hyperparameters": {"swa": {"cycle": 1, "start": None}}}, "start"),
        ({"methods.fedavg.hyperparameters": {"swa": [1]}}, "swa must be a mapping"),
        ({"methods.fedgf.hyperparameters.T_D": float("nan")}, "T_D"),
        ({"methods.fedsam.hyperparameters.rho": float("inf")}, "rho"),
        ({"methods.fedavg": {"name": "fedsam", "perturbation": "asam"}},
         "perturbation: asam would replace the method's own perturbation 'sam' (allowed: correction, server, loss)"),
        ({"methods.fedavg": {"name": ""}}, "unknown method ''"),
        ({"methods.fedavg": {"perturbation": "sam", "hyperparameters": {"rho": 0.1}, "variant": "released"}},
         "only methods of the catalog have a variant 'released'"),
        ({"methods.fedavg": {"correction": "feddyn", "server": "feddyn",
                             "hyperparameters": {"lam": 0.1, "correction.server_dual": "active"}}},
         "unknown hyper-parameter"),
        ({"methods.fedavg": {"correction": "feddyn", "server": "feddyn",
                             "hyperparameters": {"lam": 0.1, "server_dual": "active", "dual_norm": "M"}}},
         "dual_norm: M"),
    ],
)  # fmt: skip
def test_mistakes_in_methods_are_one_line(changes, message):
    with pytest.raises(UserError) as error:
        fedavg(changes, next(iter(changes)).split(".")[1])
    assert message in str(error.value)
    assert "\n" not in str(error.value)
