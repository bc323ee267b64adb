"""Precedence: every layer overrides the ones before it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fedflat.bench.experiments import resolving
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.resolving import CELL_LAYERS, FILE_LAYERS
from fedflat.bench.experiments.sections.training import AMOUNTS
from fedflat.bench.input.errors import UserError

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


def write(folder: Path, data: dict[str, Any] | None = None) -> None:
    for name, content in (("base", BASE), ("experiments", data or EXTENDING)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def run(
    folder: Path,
    overrides: dict[str, Any] | None = None,
    *,
    part: str = "other",
    partition: str = "iid",
    method: str = "fedsam",
    data: dict[str, Any] | None = None,
) -> Any:
    """The configuration of the first run of a cell, in a setting with 4 of 20 clients."""
    write(folder, data)
    experiment = load_experiment(str(folder / "experiments.yaml"), overrides)
    [cell] = [cell for cell in experiment.addresses if cell.ids[:2] == (part, partition) and cell.method == method]
    return experiment.cell(cell.path).runs[0]


def test_a_file_overrides_single_values_of_the_file_it_extends(tmp_path: Path) -> None:
    training = run(tmp_path, part="plain").training
    assert (training.lr, training.lr_decay, training.weight_decay) == (0.2, 0.9, 0.1)


def test_a_grid_inherits_the_lists_that_it_does_not_give(tmp_path: Path) -> None:
    write(tmp_path, {**EXTENDING, "grid": {"seeds": [4]}})
    grid = load_experiment(str(tmp_path / "experiments.yaml")).grid
    assert (grid.seeds, len(grid.partition), len(grid.participation)) == ((4,), 2, 1)


def test_the_name_of_an_experiment_of_paper_tables_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {**EXTENDING, "name": "quick"})
    with pytest.raises(UserError, match="the name quick belongs to paper_tables/quick; choose another name"):
        load_experiment(str(tmp_path / "experiments.yaml"))


def test_a_part_overrides_the_experiment_and_a_partition_the_part(tmp_path: Path) -> None:
    assert run(tmp_path).training.lr == 0.3
    assert run(tmp_path, partition="dirichlet-0.1").method.hyperparameters["rho"] == 0.2
    assert run(tmp_path).method.hyperparameters["rho"] == 0.4


Place = tuple[str, ...]
EXPERIMENT, PART = (), ("parts", "other")
ENTRY, PART_ENTRY = ("methods", "fedsam"), (*PART, "methods", "fedsam")
WHERE, PART_WHERE = (*ENTRY, "where", "iid"), (*PART_ENTRY, "where", "iid")
VARIANT = ("variant",)

CLIP: dict[Place, float] = {
    EXPERIMENT: 6.0, PART: 7.0, VARIANT: 10.0, ENTRY: 8.0, PART_ENTRY: 9.0, WHERE: 11.0, PART_WHERE: 12.0
}  # fmt: skip
"""Places of the value training.clip, in the order of their precedence; the variant's value is that of the release."""

RHO: dict[Place, float] = {ENTRY: 0.2, PART_ENTRY: 0.3, WHERE: 0.4, PART_WHERE: 0.5}
"""Places of the value hyperparameters.rho of fedsam."""


def placed(key: tuple[str, str], values: dict[Place, Any]) -> dict[str, Any]:
    """`EXTENDING` with a value of the key at these places."""
    data = yaml.safe_load(yaml.safe_dump({**EXTENDING, "training": {}, "methods": {"fedsam": {}}}))
    data["parts"]["other"] = {"grid": {"seeds": [0]}}
    for place, value in values.items():
        section = data
        for name in (*place, key[0]) if place != VARIANT else ENTRY:
            section = section.setdefault(name, {})
        section |= {"variant": "released:fl_simulator"} if place == VARIANT else {key[1]: value}
    return data


def subsets(places: dict[Place, Any]) -> Any:
    return st.sets(st.sampled_from(list(places))).map(lambda chosen: {p: v for p, v in places.items() if p in chosen})


def overrides_at(*places: Place) -> Any:
    """Some of the places, in any order, each with a value; the more specific the place, the larger is the value."""
    chosen = st.lists(st.sampled_from(places), unique=True)
    return chosen.map(lambda chosen: {place: 20.0 + places.index(place) for place in chosen})


def dotted(key: tuple[str, str], overrides: dict[Place, float]) -> dict[str, float]:
    return {".".join((*place, *key)): value for place, value in overrides.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("experiments")


@given(subsets(CLIP), overrides_at(EXPERIMENT, PART, ENTRY, PART_ENTRY, WHERE, PART_WHERE))
def test_the_command_line_beats_a_field_of_training_at_every_place(
    folder: Path, values: dict[Place, float], overrides: dict[Place, float]
) -> None:
    """Among the values of the file, and among those of the command line, the most specific one takes precedence."""
    key = ("training", "clip")
    config = run(folder, dotted(key, overrides), data=placed(key, values))
    assert config.training.clip == max(overrides.values(), default=[5.0, *values.values()][-1])


@given(subsets(RHO), overrides_at(ENTRY, PART_ENTRY, WHERE, PART_WHERE))
def test_the_command_line_beats_a_hyper_parameter_at_every_place(
    folder: Path, values: dict[Place, float], overrides: dict[Place, float]
) -> None:
    key = ("hyperparameters", "rho")
    config = run(folder, dotted(key, overrides), data=placed(key, values))
    assert config.method.hyperparameters["rho"] == max(overrides.values(), default=[0.1, *values.values()][-1])


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(list(CLIP)), st.sampled_from(AMOUNTS)), unique_by=lambda placed: placed[0]))
def test_the_last_amount_of_local_training_replaces_the_other_one(
    folder: Path, values: list[tuple[Place, str]]
) -> None:
    data = placed(("training", "clip"), {})
    for place, name in values:
        if place != VARIANT:
            section = data
            for key in (*place, "training"):
                section = section.setdefault(key, {})
            section[name] = 2 + list(CLIP).index(place)
    given = {place: name for place, name in values if place != VARIANT}
    last = max(given, key=list(CLIP).index, default=None)
    name, value = ("local_epochs", 1) if last is None else (given[last], 2 + list(CLIP).index(last))
    training = run(folder, data=data).training
    assert {key: getattr(training, key) for key in AMOUNTS} == {**dict.fromkeys(AMOUNTS), name: value}
    for other in AMOUNTS:
        training = run(folder, {f"training.{other}": 30}, data=data).training
        assert {key: getattr(training, key) for key in AMOUNTS} == {**dict.fromkeys(AMOUNTS), other: 30}


@pytest.mark.parametrize("place", [EXPERIMENT, PART, ENTRY, WHERE, PART_WHERE])
def test_the_command_line_replaces_local_epochs_by_steps_at_every_place(tmp_path: Path, place: Place) -> None:
    training = run(tmp_path, {".".join((*place, "training", "local_steps")): 7}).training
    assert (training.local_steps, training.local_epochs) == (7, None)


def test_either_epochs_or_steps(tmp_path: Path) -> None:
    refused = "local_epochs = 2 and training.local_steps = 5 exclude each other"
    for data, overrides, message in (
        ({**EXTENDING, "training": {"local_steps": 5, "local_epochs": 2}}, {}, refused),
        ({**EXTENDING, "training": {"local_epochs": None}}, {}, "local_epochs or training.local_steps is missing"),
        (EXTENDING, {"training.local_steps": 5, "training.local_epochs": 2}, "local_steps and training.local_epochs"),
    ):
        with pytest.raises(UserError, match=message) as error:
            run(tmp_path, overrides, data=data)
        assert "\n" not in str(error.value)
    typed = {**BASE, "training": {"rounds": 9, "local_step": 1, "batch_size": 8, "lr": 0.1}}
    with pytest.raises(UserError, match="'local_step'; did you mean 'local_steps'") as error:
        (tmp_path / "typed.yaml").write_text(yaml.safe_dump(typed), encoding="utf-8")
        load_experiment(str(tmp_path / "typed.yaml"))
    assert "missing" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dataset", "cifar10"),
        ("model", "lenet"),
        ("evaluation.every", 3),
        ("evaluation.local_models", "last"),
        ("engine.backend", "loop"),
        ("training.rounds", 5),
        ("training.augmentation", ("flip",)),
    ],
)
def test_the_command_line_beats_parts(tmp_path: Path, key: str, value: Any) -> None:
    data = yaml.safe_load(yaml.safe_dump(EXTENDING))
    section, _, name = key.partition(".")
    inner = {"every": 2, "local_models": [1], "backend": "cohort", "rounds": 7, "augmentation": ["cutout"]}
    data["parts"]["other"][section] = {name: inner[name]} if name else {"dataset": "emnist", "model": "cnn"}[section]
    config = run(tmp_path, {key: value}, data=data)
    found = getattr(config, section)
    found = getattr(found, name) if name else found.name
    assert [part.name for part in found] == ["flip"] if name == "augmentation" else found == value


def test_the_command_line_sets_the_grid_of_all_parts(tmp_path: Path) -> None:
    data = yaml.safe_load(yaml.safe_dump(EXTENDING))
    data["parts"]["other"]["grid"] = {"seeds": [0], "participation": [{"active": 3}]}
    overrides = {"grid.seeds": [5], "grid.participation": [{"active": 4}], "training.rounds": 3}
    config = run(tmp_path, overrides, data=data)
    assert (config.seed, config.participation.active, config.training.rounds) == (5, 4, 3)


def test_the_command_line_beats_the_faults_of_released_code_and_the_nested_values_of_where(tmp_path: Path) -> None:
    data = yaml.safe_load(yaml.safe_dump(EXTENDING))
    data["parts"]["other"]["methods"] = {
        "dyn": {
            "name": "feddyn",
            "variant": "released:official_fedgf",
            "hyperparameters": {"lam": 0.1},
            "where": {"iid": {"hyperparameters": {"swa": {"cycle": 2, "start": 3}}}},
        }
    }
    plain = run(tmp_path, data=data, method="dyn").method.hyperparameters
    assert (plain["lam"], plain["swa"]["cycle"], plain["swa"]["start"]) == (0.0, 2, 3)
    overrides = {"methods.dyn.hyperparameters.lam": 0.2, "methods.dyn.hyperparameters.swa.cycle": 1}
    beaten = run(tmp_path, overrides, data=data, method="dyn").method.hyperparameters
    assert (beaten["lam"], beaten["swa"]["cycle"], beaten["swa"]["start"]) == (0.2, 1, 3)
    rounds = run(tmp_path, {"training.rounds": 2}, data=data, method="dyn").method.hyperparameters
    assert rounds["swa"]["start"] == 1, "three quarters of the new number of rounds"


def test_labels_and_hyper_parameters_may_contain_dots(tmp_path: Path) -> None:
    data = yaml.safe_load(yaml.safe_dump(EXTENDING))
    mixed = {"perturbation": "mixed_sam", "correction": "fedcm", "hyperparameters": {"rho": 0.1, "alpha": 0.2}}
    data["methods"]["mixed.1"] = mixed
    overrides = {
        "methods.mixed.1.hyperparameters.correction.alpha": 0.3,
        "methods.mixed.1.where.dirichlet-0.1.hyperparameters.rho": 0.4,
    }
    config = run(tmp_path, overrides, partition="dirichlet-0.1", data=data, method="mixed.1")
    found = config.method.hyperparameters
    assert (found["perturbation.alpha"], found["correction.alpha"], found["rho"]) == (0.2, 0.3, 0.4)


def test_the_entries_of_methods_show_no_value_that_the_command_line_replaces(tmp_path: Path) -> None:
    """Captions list the training settings of entries."""
    write(tmp_path)
    source = str(tmp_path / "experiments.yaml")
    assert load_experiment(source).methods["fedsam"].training == {"weight_decay": 0.1}
    assert load_experiment(source, {"training.weight_decay": 0.2}).methods["fedsam"].training == {}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("parts.othre.training.lr", "unknown part of experiment mine 'othre'; did you mean 'other'"),
        ("methods.fedsam.where.idd.training.lr", "methods.fedsam.where.idd.training.lr applies to none of the cells"),
        ("extends", "only the experiment's file can extend another experiment"),
        ("training.lr.x", "lr is a value, not a section; replace it as a whole: 'training.lr="),
        ("grid.partition.alpha", "partition is a value, not a section; replace it as a whole: 'grid.partition=[{"),
        ("lr", "unknown key 'lr'; did you mean 'training.lr'?"),
        ("engine.lr", "unknown key 'engine.lr'; did you mean 'training.lr'?"),
        ("rho", "unknown key 'rho'; did you mean 'methods.fedsam.hyperparameters.rho'?"),
        ("methods.fedsam.rho", "unknown key 'methods.fedsam.rho'; did you mean 'methods.fedsam.hyperparameters.rho'?"),
        ("colour", "unknown key of an experiment 'colour'"),
        ("methods.fedsam.colour", "unknown key of a method's entry 'colour'"),
        ("methods.fedsma.hyperparameters.rho", "unknown method of experiment mine 'fedsma'; did you mean 'fedsam'"),
        ("methods.fedavg.training.lr", "unknown method of experiment mine 'fedavg'"),
        ("parts.other.methods.fedavg.training.lr", "unknown method of experiment mine 'fedavg'"),
    ],
)
def test_an_override_without_effect_is_refused(tmp_path: Path, key: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as error:
        run(tmp_path, {key: 1.0})
    assert "\n" not in str(error.value)


def test_the_command_line_beats_smoke_scale_except_for_its_data_and_model(tmp_path: Path) -> None:
    assert run(tmp_path, {"scale": "smoke"}).training.rounds == 8
    assert run(tmp_path, {"scale": "smoke", "training.rounds": 3}).training.rounds == 3
    config = run(tmp_path, {"scale": "smoke", "evaluation.every": 2, "training.augmentation": ["flip"]})
    assert (config.evaluation.every, config.training.augmentation[0].name) == (2, "flip")
    for key, value in {"model": "lenet", "parts.other.dataset": "cifar10"}.items():
        with pytest.raises(UserError, match="smoke scale has its own data set and model"):
            run(tmp_path, {"scale": "smoke", key: value})


def test_smoke_scale_in_a_file_is_that_of_the_command_line(tmp_path: Path) -> None:
    data = {**EXTENDING, "scale": "smoke"}
    assert run(tmp_path, data=data) == run(tmp_path, {"scale": "smoke"})
    source = str(tmp_path / "experiments.yaml")
    write(tmp_path, data)
    assert load_experiment(source).name == "mine_smoke"
    assert load_experiment(source, {"scale": "paper"}).name == "mine"
    assert run(tmp_path, {"scale": "paper"}, data=data).training.rounds == 7


def test_what_no_layer_gives_is_filled_in_from_the_other_values(tmp_path: Path) -> None:
    data = {**EXTENDING, "methods": {"fedsam": {"hyperparameters": {"swa": {"cycle": 1}}}}}
    config = run(tmp_path, data=data)
    assert config.method.hyperparameters["swa"]["start"] == 5, "three quarters of the part's 7 rounds"
    assert config.training.aggregation == "samples"
    assert config.training.server_lr == 1.0


def test_layers_are_in_the_documented_order() -> None:
    """The numbered list at the top of the module says what the code does."""
    documented = re.findall(r"^\d+\. `(_\w+)`: ", str(resolving.__doc__), re.MULTILINE)
    assert [layer.__name__ for layer in (*FILE_LAYERS, *CELL_LAYERS)] == documented


def test_a_schedule_of_the_local_rate_replaces_its_decay_and_vice_versa():
    """On the command line everywhere, also where a method has its own decay, as FedDyn in quick."""
    cosine = {"name": "cosine"}
    setting = "digits/dirichlet-0.1/4-of-20"
    scheduled = load_experiment("quick", {"training.lr_schedule": cosine})
    decaying = load_experiment("quick", {"training.lr_schedule": cosine, "methods.fedavg.training.lr_decay": 0.9})
    for experiment, method, decay in ((scheduled, "feddyn", 1), (decaying, "feddyn", 1), (decaying, "fedavg", 0.9)):
        training = experiment.cell(f"{setting}/{method}").runs[0].training
        assert (training.lr_decay, training.lr_schedule is None) == (decay, decay != 1), method
    with pytest.raises(UserError, match=r"training.lr_decay and training.lr_schedule exclude each other"):
        load_experiment("quick", {"training.lr_decay": 0.9, "training.lr_schedule": cosine})


def test_schedules_of_hyperparameters_are_overridden_as_a_whole_or_by_key():
    key = "methods.fedsam.hyperparameters.schedules"
    rise = {"name": "warmup", "rounds": 3, "start": 0.0}
    for overrides in ({key: {"rho": rise}}, {f"{key}.rho": rise}):
        run = load_experiment("quick", overrides).cell("digits/dirichlet-0.1/4-of-20/fedsam").runs[0]
        assert run.method.hyperparameters["schedules"] == {"rho": {**rise, "then": {"name": "constant"}}}
        assert run.method.hyperparameters["rho"] == 0.05


def test_a_schedule_keeps_no_key_of_another_one(tmp_path):
    """`rounds` of a warm-up would otherwise be those of a cosine, after which rho is 0."""
    warm_up = {"rho": {"name": "warmup", "rounds": 2, "start": 0.5}}
    cosine = {"methods": {"fedsam": {"hyperparameters": {"schedules": {"rho": {"name": "cosine"}}}}}}
    falling = {"methods": {"fedsam": {"hyperparameters": {"schedules": {"rho": {"rounds": 3}}}}}}
    data = {
        **BASE,
        "methods": {"fedsam": {"hyperparameters": {"rho": 0.1, "schedules": warm_up}}},
        "parts": {"same": {}, "other": cosine, "longer": falling},
    }
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")

    def schedule(part: str, values: dict[str, Any]) -> dict[str, Any]:
        config = load_experiment(str(file), values).cell(f"{part}/iid/4-of-20/fedsam").runs[0]
        return config.method.hyperparameters["schedules"]["rho"]

    assert schedule("other", {}) == {"name": "cosine", "end": 0.0}
    assert schedule("longer", {}) == schedule("same", {}) | {"rounds": 3}
    key = "methods.fedsam.hyperparameters.schedules.rho"
    assert schedule("same", {key: {"name": "exponential", "decay": 0.9}}) == {"name": "exponential", "decay": 0.9}
    assert schedule("longer", {f"{key}.rounds": 4})["rounds"] == 4


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("training.work.share", 0.7, {"name": "stragglers", "share": 0.7, "least": 1}),
        ("parts.some.training.work.least", 2, {"name": "stragglers", "share": 0.5, "least": 2}),
        ("training.work", {"name": "uniform"}, {"name": "uniform", "least": 1}),
        ("methods.fedsam.training.work.share", 0.2, {"name": "stragglers", "share": 0.2, "least": 1}),
    ],
)
def test_the_command_line_sets_one_key_of_a_mapping_of_training(tmp_path, key, value, found):
    training = {**BASE["training"], "work": {"name": "stragglers", "share": 0.5}, "local_epochs": 4}
    del training["lr_decay"]
    file = tmp_path / "own.yaml"
    schedule = {"lr_schedule": {"name": "cosine", "rounds": 30}}
    data = {**BASE, "training": {**training, **schedule}, "parts": {"some": {}}}
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    run = load_experiment(str(file), {key: value, "training.lr_schedule.end": 0.2}).cell("some/iid/4-of-20/fedsam")
    assert run.runs[0].training.work.model_dump() == found
    assert run.runs[0].training.lr_schedule.model_dump() == {"name": "cosine", "rounds": 30, "end": 0.2}


def test_the_name_of_an_own_experiment_leads_to_its_file(tmp_path, monkeypatch):
    """Only a file is allowed, so that nothing depends on what else is in the folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment").mkdir()
    write(tmp_path / "experiment")
    (tmp_path / "notes.yaml").write_bytes(b"name: other\n\xff")
    with pytest.raises(UserError, match=r"but yours: name it by its file, 'experiment/experiments.yaml'$"):
        load_experiment("mine")
    with pytest.raises(
        UserError, match=r"^unknown experiment 'mines' .*; name an experiment of yours by its YAML file$"
    ):
        load_experiment("mines")


@pytest.mark.parametrize(
    ("target", "experiment"),
    [("quick_table_accuracy", "quick"), ("quick_all_runs", "quick_all"), ("fedgf_cifar10_figure_4", "fedgf_cifar10")],
)
def test_a_target_of_snakemake_leads_to_its_experiment(target: str, experiment: str) -> None:
    with pytest.raises(UserError, match=f"unknown experiment '{target}'; did you mean '{experiment}'\\?"):
        load_experiment(target)
