"""Experiments with parts: grids that share what the experiment says above them."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fedflat.analysis.published.numbers import papers
from fedflat.bench.data.root import data_root
from fedflat.bench.experiments.experiment import Experiment, load_experiment, unused_where
from fedflat.bench.experiments.sections.scale import at_smoke_scale
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.swa import SWA
from fedflat.bench.numerics.streams import numpy_stream
from fedflat.bench.training.run_setup import RunSetup, load_dataset

PAPER: dict[str, Any] = {
    "name": "paper",
    "dataset": "digits",
    "model": "cnn_gn",
    "training": {"rounds": 4, "local_epochs": 1, "batch_size": 16, "lr": 0.1, "augmentation": ["flip"]},
    "evaluation": {"every": 2, "local_models": "last"},
    "grid": {
        "partition": [{"name": "dirichlet", "alpha": 0.1, "clients": 20}, {"name": "iid", "clients": 20}],
        "participation": [{"active": 4}],
        "seeds": [0, 1],
    },
    "methods": {
        "fedavg": {},
        "fedsam": {"hyperparameters": {"rho": 0.1}, "where": {"iid": {"hyperparameters": {"rho": 0.02}}}},
    },
    "parts": {
        "first": {},
        "second": {
            "model": "cnn_emnist",
            "training": {"rounds": 8, "augmentation": None},
            "evaluation": {"local_models": None},
            "grid": {"partition": [{"name": "iid", "clients": 10}], "participation": [{"active": 2}, {"active": 3}]},
            "methods": {
                "fedsam": {"hyperparameters": {"rho": 0.3}, "where": {"iid": {"training": {"lr": 0.01}}}},
                "fedsam.half": {"name": "fedsam", "hyperparameters": {"rho": 0.05}},
            },
        },
        "third": {"only": ["fedavg"], "grid": {"partition": [{"name": "iid", "clients": 5}]}},
    },
}


def load(tmp_path: Path, data: dict[str, Any]) -> Experiment:
    file = tmp_path / "experiments.yaml"
    file.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return load_experiment(str(file))


def changed(path: str, value: Any) -> dict[str, Any]:
    """PAPER with another value at a dotted path of its keys."""
    *parents, last = path.split("/")
    data = yaml.safe_load(yaml.safe_dump(PAPER, sort_keys=False))
    place = data
    for key in parents:
        place = place.setdefault(key, {})
    place[last] = value
    return data


def test_cells_are_those_of_all_parts_with_their_labels_in_front(tmp_path: Path) -> None:
    experiment = load(tmp_path, PAPER)
    assert list(experiment.cells()) == [
        "first/dirichlet-0.1/4-of-20/fedavg",
        "first/dirichlet-0.1/4-of-20/fedsam",
        "first/iid/4-of-20/fedavg",
        "first/iid/4-of-20/fedsam",
        "second/iid/2-of-10/fedavg",
        "second/iid/2-of-10/fedsam",
        "second/iid/2-of-10/fedsam.half",
        "second/iid/3-of-10/fedavg",
        "second/iid/3-of-10/fedsam",
        "second/iid/3-of-10/fedsam.half",
        "third/iid/4-of-5/fedavg",
    ]
    assert list(experiment.methods) == ["fedavg", "fedsam", "fedsam.half"]


def test_a_part_keeps_what_it_does_not_say_anew(tmp_path: Path) -> None:
    experiment = load(tmp_path, PAPER)
    first = experiment.cell("first/iid/4-of-20/fedsam").runs[0]
    second = experiment.cell("second/iid/2-of-10/fedsam").runs[1]
    assert (first.training.rounds, first.training.lr, first.training.batch_size) == (4, 0.1, 16)
    assert (second.training.rounds, second.training.lr, second.training.batch_size) == (8, 0.01, 16)
    assert (first.evaluation.local_models, second.evaluation.local_models) == ("last", None)
    assert (len(first.training.augmentation or ()), second.training.augmentation) == (1, None)
    assert (first.model.name, second.model.name, second.seed) == ("cnn_gn", "cnn_emnist", 1)


def test_a_method_differs_where_its_entry_says_so(tmp_path: Path) -> None:
    """By partition, in the common entry and in a part's."""
    experiment = load(tmp_path, PAPER)
    rho = {path: cell.runs[0].method.hyperparameters.get("rho") for path, cell in experiment.cells().items()}
    assert rho["first/dirichlet-0.1/4-of-20/fedsam"] == 0.1
    assert rho["first/iid/4-of-20/fedsam"] == 0.02
    assert rho["second/iid/2-of-10/fedsam"] == 0.02
    assert rho["second/iid/2-of-10/fedsam.half"] == 0.05


def test_the_evaluation_differs_where_its_participation_says_so(tmp_path: Path) -> None:
    data = changed("parts/second/evaluation_where", {"3-of-10": {"every": 1, "snapshot_every": 8}})
    plain, special = load(tmp_path, PAPER), load(tmp_path, data)
    differing = {path for path, cell in special.cells().items() if cell.identity != plain.cell(path).identity}
    assert differing == {path for path in special.paths() if "/3-of-10/" in path}
    run = special.cell("second/iid/3-of-10/fedsam").runs[0]
    assert (run.evaluation.every, run.snapshots, run.evaluation.local_models) == (1, [8], None)
    by_participation = {setting.participation: special.evaluation_in(setting) for setting in special.settings}
    assert by_participation["3-of-10"] == run.evaluation
    assert by_participation["2-of-10"].snapshot_every is None
    file = str(tmp_path / "experiments.yaml")
    assert (
        load_experiment(file, {"evaluation.every": 3}).cell("second/iid/3-of-10/fedsam").runs[0].evaluation.every == 3
    )
    both = load_experiment(file, {"evaluation_where.3-of-10.every": 4, "evaluation.every": 3})
    assert both.cell("second/iid/3-of-10/fedsam").runs[0].evaluation.every == 4
    assert both.cell("second/iid/2-of-10/fedsam").runs[0].evaluation.every == 3
    others = load_experiment(file, {"grid.participation": [{"active": 1}]})
    assert others.cell("second/iid/1-of-10/fedsam").runs[0].snapshots == []


def every(experiment: Experiment) -> dict[str, int]:
    """The rounds between evaluations by part and participation."""
    return {
        f"{setting.dataset}/{setting.participation}": experiment.evaluation_in(setting).every
        for setting in experiment.settings
    }


EVERY = {"first/4-of-20": 2, "second/2-of-10": 2, "second/3-of-10": 2, "third/4-of-5": 2}


def test_a_label_of_the_experiment_needs_one_part_only(tmp_path: Path) -> None:
    data = changed("evaluation_where", {"3-of-10": {"every": 1}, "4-of-20": {"every": 3}})
    assert every(load(tmp_path, data)) == EVERY | {"second/3-of-10": 1, "first/4-of-20": 3}
    data["parts"]["second"]["evaluation_where"] = {"3-of-10": None}
    assert every(load(tmp_path, data)) == EVERY | {"first/4-of-20": 3}


def test_inherited_labels_may_have_lost_their_participation(tmp_path: Path) -> None:
    base = changed("evaluation_where", {"4-of-20": {"every": 1}})
    load(tmp_path, base)
    mine = tmp_path / "mine.yaml"

    def extended(text: str) -> Experiment:
        mine.write_text(f"name: mine\nextends: experiments.yaml\n{text}", encoding="utf-8")
        return load_experiment(str(mine))

    assert every(extended("")) == EVERY | {"first/4-of-20": 1}
    assert every(extended("evaluation_where: {4-of-20: null}")) == EVERY
    of_others = extended("grid: {participation: [{active: 3}]}")
    assert every(of_others)["first/3-of-20"] == 2
    with pytest.raises(UserError, match="participation in evaluation_where of experiment mine '4-of-20'"):
        extended("grid: {participation: [{active: 3}]}\nevaluation_where: {4-of-20: {every: 3}}")
    assert "first/3-of-20" in every(extended("grid: {participation: [{active: 3}]}\nevaluation_where: {4-of-20: null}"))


def test_values_of_a_method_need_a_partition_of_the_grid(tmp_path: Path) -> None:
    """Inherited ones that have lost it are left out, and a line says so."""
    quick = "name: mine\nextends: quick\n"
    method = "methods: {fedsam: {where: {dirichlet-0.6: {hyperparameters: {rho: 0.2}}}}}\n"
    other = "grid: {partition: [{name: dirichlet, clients: 20, alpha: 0.3}]}\n"
    (tmp_path / "base.yaml").write_text(quick + method, "utf-8")
    (file := tmp_path / "mine.yaml").write_text(quick + method + other, "utf-8")
    with pytest.raises(UserError, match=r"unknown partition or setting in where of fedsam 'dirichlet-0.6'; did"):
        load_experiment(str(file))
    in_part = f"parts: {{a: {{}}, b: {{{method.strip()}}}}}\n"
    file.write_text(quick + other + "methods: {fedsam: {}}\n" + in_part, "utf-8")
    with pytest.raises(UserError, match=r"unknown partition or setting in where of fedsam 'dirichlet-0.6'"):
        load_experiment(str(file))
    file.write_text(f"name: mine\nextends: base.yaml\n{other}", "utf-8")
    assert unused_where(load_experiment(str(file))) == [
        "mine: values for dirichlet-0.6, which its grid lacks, are left out (fedsam)"
    ]
    assert unused_where(load_experiment(str(tmp_path / "base.yaml"))) == []


def test_mistakes_of_methods_are_listed_with_labels_of_no_partition(tmp_path: Path) -> None:
    where = "where: {dirichlet-0.7: {hyperparameters: {rho: 2}}}"
    methods = f"{{fedsam: {{{where}}}, fedavg: {{training: {{lrr: 1}}}}}}"
    (file := tmp_path / "mine.yaml").write_text(f"name: mine\nextends: quick\nmethods: {methods}\n", "utf-8")
    with pytest.raises(UserError, match=r"2 problems\n.*'dirichlet-0.7'.*\n.*'lrr'"):
        load_experiment(str(file))


def test_papers_can_be_extended_with_other_participations(tmp_path: Path) -> None:
    (file := tmp_path / "mine.yaml").write_text(
        "name: mine\nextends: fedgf\ngrid: {participation: [{active: 30}]}\n", encoding="utf-8"
    )
    assert every(load_experiment(str(file)))["cifar10/30-of-100"] == 100


def test_the_command_line_gives_labels_with_dots(tmp_path: Path) -> None:
    data = changed("grid/participation", [{"sampling": "bernoulli", "probability": 0.2}])
    load(tmp_path, data)
    file, label = str(tmp_path / "experiments.yaml"), "bernoulli-0.2-of-20"
    for key, value in {f"evaluation_where.{label}.every": 1, f"evaluation_where.{label}": {"every": 1}}.items():
        assert every(load_experiment(file, {key: value}))[f"first/{label}"] == 1
    around = load_experiment(file, {f"evaluation_where.{label}.around": {"every": 2, "rounds": 2}})
    assert around.cell(f"first/iid/{label}/fedavg").runs[0].evaluated_rounds == {1, 2, 3, 4}
    in_part = load_experiment(file, {"parts.second.evaluation_where.3-of-10.every": 1})
    assert (every(in_part)["second/3-of-10"], every(in_part)["second/2-of-10"]) == (1, 2)
    mistakes: dict[str, tuple[Any, str]] = {
        "evaluation_where.4-of-21.every": (1, "participation in evaluation_where of experiment paper '4-of-21'"),
        "parts.second.evaluation_where.4-of-20.every": (1, "participation in evaluation_where of second '4-of-20'"),
        "evaluation_where": ({"4-of-21": {"every": 1}}, "participation in evaluation_where of experiment paper"),
        f"evaluation_where.{label}.evry": (1, "did you mean '.*every'"),
    }
    for key, (value, message) in mistakes.items():
        with pytest.raises(UserError, match=message) as error:
            load_experiment(file, {key: value})
        assert "\n" not in str(error.value)


def test_an_experiment_without_parts_is_its_only_grid() -> None:
    quick = load_experiment("quick")
    assert quick.resolved_parts == {"digits": quick}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("parts/second/evaluation_where", {"4-of-10": {"every": 1}}, "evaluation_where of second '4-of-10'"),
        ("parts/second/evaluation_where", {"3-of-10": {"evry": 1}}, "did you mean '.*every'"),
        ("evaluation_where", {"4-of-20": {"every": 0}}, "every = 0: Input should be greater than or equal to 1"),
        (
            "parts/second/grid/seeds",
            [1],
            r"its seeds must be the first ones of the experiment's seeds, which are \(0, 1\)",
        ),
        ("parts/third/only", ["fedsma"], "unknown method of experiment paper 'fedsma'; did you mean 'fedsam'"),
        ("parts/third/rounds", 3, "unknown key of a part of an experiment 'rounds'"),
        ("parts/second/training/round", 3, "part second: .*unknown key of training 'round'; did you mean 'rounds'"),
        ("methods/fedavg", {"parts": ["fourth"]}, "unknown part of experiment paper 'fourth'"),
        ("parts/second/methods/fedavg", {"rho": 1}, "part second: .*unknown key of a method's entry 'rho'"),
        ("dataset", None, "part first: experiment paper: dataset is missing"),
        ("methods/fedsam/where", {"iid": {"rho": 1}}, "unknown key of an entry of where 'rho'"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, path: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        load(tmp_path, changed(path, value))
    assert "\n" not in str(error.value)


def test_an_experiment_without_data_is_reported(tmp_path: Path) -> None:
    data = {key: value for key, value in PAPER.items() if key not in ("parts", "dataset")}
    with pytest.raises(UserError, match="experiment paper: dataset is missing"):
        load(tmp_path, data)


def test_rounds_and_seeds_that_are_requested_hold_everywhere(tmp_path: Path) -> None:
    data = changed("parts/second/grid/seeds", [0])
    data["methods"]["fedavg"] = {"training": {"rounds": 9}, "hyperparameters": {"swa": {"cycle": 1, "start": 8}}}
    (tmp_path / "experiments.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    cells = load_experiment(str(tmp_path / "experiments.yaml"), {"training.rounds": 2, "grid.seeds": [5, 6]}).cells()
    assert {run.training.rounds for cell in cells.values() for run in cell.runs} == {2}
    assert {tuple(run.seed for run in cell.runs) for cell in cells.values()} == {(5, 6)}
    swa = cells["third/iid/4-of-5/fedavg"].runs[0].method.hyperparameters["swa"]
    assert swa["start"] == 1, "three quarters of the rounds, as ever"


def test_smoke_scale_is_the_same_grid_on_digits(tmp_path: Path) -> None:
    data = changed("parts/second/dataset", "cifar100")
    data["parts"]["second"]["grid"] = {
        "partition": [{"name": "pathological", "classes_per_client": 20, "clients": 500}],
        "participation": [{"active": 10}],
    }
    (tmp_path / "experiments.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    source = str(tmp_path / "experiments.yaml")
    paper, smoke = load_experiment(source).cells(), load_experiment(source, {"scale": "smoke"})
    assert smoke.name == "paper_smoke"
    assert list(smoke.cells()) == list(paper)
    run = smoke.cell("second/pathological-20/10-of-500/fedsam").runs[0]
    assert (run.dataset.name, run.model.name, run.training.rounds, run.training.lr) == ("digits", "cnn_gn", 8, 0.1)
    assert run.partition.model_dump() == {
        "name": "pathological", "clients": 200, "classes_per_client": 2, "variant": None,
    }  # fmt: skip
    RunSetup.build(run, torch.device("cpu"))


@pytest.mark.parametrize("paper", papers())
def test_at_smoke_scale_every_partition_of_the_papers_splits_the_digits(paper: str) -> None:
    runs = [cell.runs[0] for cell in load_experiment(paper, {"scale": "smoke"}).cells().values()]
    pairs = {(run.dataset.model_dump_json(), run.partition.model_dump_json()): run for run in runs}
    samples = {name: load_dataset(run.dataset, data_root()).train for (name, _), run in pairs.items()}
    for ((name, _), run), seed in itertools.product(pairs.items(), (0, 1, 2)):
        digits, partition = samples[name], run.partition
        split = partition.split(digits, numpy_stream(seed, "partition"))
        assert len(split) == partition.clients
        if partition.name == "pathological" and partition.variant is None:
            held = {len(set(digits.labels[images])) for images in split}
            assert held == {partition.classes_per_client}, "of each class that it holds, every client has an image"


def test_at_smoke_scale_no_more_clients_are_active_than_there_are(tmp_path: Path) -> None:
    data = changed("parts/second/dataset", "cifar10")
    data["parts"]["second"]["grid"] = {
        "partition": [{"name": "pathological", "classes_per_client": 10, "clients": 100}],
        "participation": [{"active": 100}, {"sampling": "bernoulli", "probability": 0.1}],
    }
    (tmp_path / "experiments.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    smoke = load_experiment(str(tmp_path / "experiments.yaml"), {"scale": "smoke"})
    run = smoke.cell("second/pathological-10/100-of-100/fedsam").runs[0]
    assert (run.partition.clients, run.participation.active) == (80, 80)
    run = smoke.cell("second/pathological-10/bernoulli-0.1-of-100/fedsam").runs[0]
    assert run.participation.probability == 0.1


def swa_at_smoke_scale(name: str, **overrides: Any) -> Iterator[tuple[SWA, int]]:
    """Each SWA of an experiment's cells at smoke scale, with the number of rounds."""
    for cell in load_experiment(name, {"scale": "smoke", **overrides}).cells().values():
        method = cell.runs[0].method
        if (swa := method.recipe.build(method.hyperparameters).swa) is not None:
            yield swa, cell.runs[0].training.rounds


def averaged_models(swa: SWA, rounds: int) -> int:
    """How many models SWA averages when it follows the rounds of a run."""
    w = torch.zeros(1)
    state = swa.start_server(w)
    for t in range(rounds):
        state |= swa.after_round(t, w, w, state)
    return int(state["n_swa"])


def test_at_smoke_scale_swa_of_every_paper_averages_at_least_two_models() -> None:
    found = [one for paper in papers() for one in swa_at_smoke_scale(paper)]
    averaged = [(swa, rounds) for swa, rounds in found if swa.collect != "none"]
    assert {swa.cycle for swa, _ in averaged} == {1, 2}
    assert min(averaged_models(swa, rounds) for swa, rounds in averaged) >= 2
    assert {swa.cycle for swa, _ in found if swa.collect == "none"} == {2}, "a cycle of 1 has a constant rate"


@pytest.mark.parametrize("rounds", [4, 5, 7, 40])
def test_at_smoke_scale_swa_fits_other_numbers_of_rounds(rounds: int) -> None:
    found = list(swa_at_smoke_scale("fedsam_caldarola", **{"training.rounds": rounds, "grid.seeds": [0]}))
    assert all(averaged_models(swa, rounds) >= 2 for swa, _ in found if swa.collect != "none")


def test_at_smoke_scale_swa_of_the_command_line_stays(tmp_path: Path) -> None:
    data = changed("methods/fedavg", {"hyperparameters": {"swa": {"cycle": 30, "start": 3}}})
    (tmp_path / "experiments.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    source = str(tmp_path / "experiments.yaml")
    assert {(swa.start, swa.cycle) for swa, _ in swa_at_smoke_scale(source)} == {(4, 2)}
    given = {"methods.fedavg.hyperparameters.swa.cycle": 3}
    assert {(swa.start, swa.cycle) for swa, _ in swa_at_smoke_scale(source, **given)} == {(4, 3)}


@pytest.mark.parametrize(("dataset", "size"), [("cifar10", 4), ("digits", 16)])
def test_at_smoke_scale_mixup_and_cutout_stay(dataset: str, size: int) -> None:
    given = ["standard", "mixup", {"name": "cutout", "size": 16}]
    run = {
        **load_experiment("quick").cell("digits/dirichlet-0.1/4-of-20/fedavg").runs[0].model_dump(),
        "dataset": dataset,
    }
    run["training"]["augmentation"] = given
    assert at_smoke_scale(run)["training"]["augmentation"] == [
        {"name": "mixup", "a": 1.0},
        {"name": "cutout", "size": size},
    ]
    run["training"]["augmentation"] = "standard"
    assert at_smoke_scale(run)["training"]["augmentation"] is None


def test_only_chosen_methods_have_cells(tmp_path: Path) -> None:
    (tmp_path / "experiments.yaml").write_text(yaml.safe_dump(PAPER, sort_keys=False), encoding="utf-8")
    source = str(tmp_path / "experiments.yaml")
    for method in ("fedavg", "fedsam"):
        cells = load_experiment(source, {"chosen": [method]}).cells()
        labels = {path.rpartition("/")[2] for path in cells}
        assert labels == {method} | ({"fedsam.half"} if method == "fedsam" else set()), "its variants are chosen, too"
    one = load_experiment(source, {"chosen": ["fedsam.half"]})
    assert {path.rpartition("/")[2] for path in one.cells()} == {"fedsam.half"}
    assert load_experiment(source, {"chosen": ["fedgf"]}).paths() == [], "methods may be another experiment's"
    [path, *_] = load_experiment(source).paths()
    assert load_experiment(source, {"chosen": ["fedgf"]}).cell(path).path == path, "analyses may compare with others"
