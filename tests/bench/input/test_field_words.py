"""Messages about a value say what its field is and give an example; `all` is accepted where it means one thing."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Annotated, Any, get_args

import numpy as np
import pytest
import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from fedflat import analysis, bench
from fedflat.analysis.analyses import parse_analysis
from fedflat.bench.engine.participation import Participation
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.schema import ExperimentFile
from fedflat.bench.input.bounds import MOST_IMAGES
from fedflat.bench.input.errors import UserError, unknown
from fedflat.bench.input.field_words import FilledIn, described, field_at, keys
from fedflat.bench.input.frozen import Frozen, kinds

CELL = "digits/dirichlet-0.1/4-of-20/fedavg"
SAID = [
    ("training.clip=none", "Input should be a number; did you mean null? (largest norm of the direction q; null: off;"),
    ("evaluation.until=none", "did you mean null? (test accuracy, or mean IoU for segmentation, in percent at which"),
    ("training.clip=off", "not true or false; did you mean null? (largest norm of the direction q; null: off;"),
    ("training.clip=true", "should be a number, not true or false (largest norm of the direction q; null: off;"),
    ("evaluation.until=no", "not true or false; did you mean null? (test accuracy, or mean IoU for segmentation"),
    ("training.batch_size=true", "not true or false (mini-batch size B; all: all images of a client; for example 50)"),
    ("training.prox_split=1", "prox_split = 1 (allowed: true or false) (a proximal term's λw joins the decay"),
    ("training.augmentation=off", "unknown augmentation 'False'; did you mean 'null'?"),
    ("training.augmentation=none", "unknown augmentation 'none'; did you mean 'null'?"),
    ("evaluation.local_models=none", "(allowed: a list of rounds from 1, such as [10, 30], or last; null: none)"),
    ("training.batch_size=full", "a whole number (mini-batch size B; all: all images of a client; for example 50)"),
    ("training.local_epochs=0.25", "For a part of an epoch: local_steps; for example 5)"),
    (
        "grid.seeds=3",
        "grid.seeds = 3: Input should be a list (the seeds of the runs of each cell; for example [0, 1, 2])",
    ),
    ("grid.participation=[{active: 0.2}]", "For a share of the clients: {sampling: bernoulli, probability: 0.2};"),
    ("grid.partition=[{name: lda, clients: 9, alpha: x}]", "lda.alpha = 'x': Input should be a number (concentration"),
    ("methods.fedprox.hyperparameters.lam=-1", "(weight of the drift from the received model; for example 0.1)"),
    ("seeds=[1]", "unknown key 'seeds'; did you mean 'grid.seeds'?"),
    ("seed=1", "unknown key 'seed'; did you mean 'grid.seeds'?"),
    ("partition.name=iid", "did you mean 'grid.partition'?"),
    ("grid.partition=[{name: noniid, clients: 9}]", "unknown grid.partition.0 'noniid' (allowed: by_group,"),
    ("grid.partition=[{name: from_file, fil: x}]", "(allowed: clients, file, name, order, repeats, title)"),
    (
        "grid.participation=[{active: 4, availability: {name: bernoulli, probability: x}}]",
        "(probability that a client is available in a round; for example 0.5)",
    ),
    (
        "grid.participation=[{active: 4, availability: {name: from_file, fil: x}}]",
        "unknown key of from_file 'fil'; did you mean 'file'? (allowed: file, name)",
    ),
]


@pytest.mark.parametrize(("given", "said"), SAID, ids=[given for given, _ in SAID])
def test_a_message_names_the_way(given, said):
    key, _, value = given.partition("=")
    method = "fedprox" if "fedprox" in key else "fedavg"
    with pytest.raises(UserError) as error:
        load_experiment("quick_all", {key: yaml.safe_load(value)}).cell(CELL.replace("fedavg", method))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_options_of_analyses_are_explained_too():
    with pytest.raises(
        UserError, match=r"radii = 0.1: Input should be a list \(radii of the balls; for example \[0.05"
    ):
        parse_analysis("sharpness", {"radii": 0.1})
    with pytest.raises(UserError, match=r"rounds = 'last': .* \(rounds with stored states; null: all of them; for ex"):
        parse_analysis("client_hessian", {"rounds": "last"})


def test_all_is_accepted_where_it_means_one_thing():
    every = {"training.batch_size": "all", "evaluation.training_images": "all"}
    run = load_experiment("quick_all", every).cell(CELL).runs[0]
    assert run.evaluation.count(60_000) == 60_000, "without the bound of the default"
    assert run.training.local.batch_size == MOST_IMAGES
    assert Participation.parse({"active": "all"}) == Participation(sampling="full")
    for kind, key in (("hessian", "images"), ("client_hessian", "clients"), ("client_hessian", "rounds")):
        assert parse_analysis(kind, {key: "all"}) == parse_analysis(kind, {})
    with pytest.raises(UserError, match="rounds = 'all': Input should be a whole number"):
        load_experiment("quick_all", {"training.rounds": "all"})


def test_a_batch_of_all_images_is_one_step_per_epoch():
    run = load_experiment("quick_all", {"training.batch_size": "all", "training.local_epochs": 2}).cell(CELL).runs[0]
    sampler = run.training.local.sampler([np.arange(7), np.arange(90)], seed=0)
    assert [[len(index) for index in sampler(client, 0)] for client in (0, 1)] == [[7, 7], [90, 90]]


def subclasses(model: type[BaseModel]) -> set[type[BaseModel]]:
    return {model}.union(*map(subclasses, model.__subclasses__()))


def models() -> list[type[BaseModel]]:
    """Those of configurations, analyses, tables, figures and claims."""
    for package in (bench, analysis):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found = {one for one in subclasses(Frozen) if one.__module__.startswith(("fedflat.bench.", "fedflat.analysis."))}
    return sorted(found, key=lambda one: (one.__module__, one.__name__))


def by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields that users may give, by the keys that they write."""
    return {key: field for name, field in model.model_fields.items() if (key := field.alias or name) in keys(model)}


def fields() -> Iterator[tuple[str, FieldInfo]]:
    for one in models():
        yield from ((f"{one.__name__}.{name}", field) for name, field in one.model_fields.items())


def test_every_number_of_a_configuration_is_described_with_an_example():
    """So a message about any of them can say what is wanted."""
    plain = {
        "RunConfig.seed", "RunConfig.version",  # of stored runs
        "Centralized.clients",  # 1
        "TableBlock.published", "Column.published", "TableLayout.rows",  # of any key
    }  # fmt: skip
    silent = [
        place
        for one in models()
        for name, field in by_key(one).items()
        if kinds({name: field})[name].is_number
        and one.__name__ != "Tuned"
        and (place := f"{one.__name__}.{name}") not in plain
        if "for example" not in described(field)
    ]
    assert len(models()) > 150 and not silent


def test_each_example_is_one_of_its_field():
    wrong = [name for name, field in fields() for example in field.examples or () if not is_allowed(field, example)]
    assert not wrong


def is_allowed(field: FieldInfo, example: object) -> bool:
    given = yaml.safe_load(example) if isinstance(example, str) else example
    try:
        TypeAdapter(Annotated[field.annotation, *field.metadata, None]).validate_python(given)
    except ValidationError:
        return False
    return True


def test_examples_are_of_whole_fields():
    """Those of an entry of a list are not part of the messages about the list."""
    of_parts = [name for name, field in fields() if any(has_examples(part) for part in get_args(field.annotation))]
    assert not of_parts


def has_examples(annotation: Any) -> bool:
    own = isinstance(annotation, FieldInfo) and bool(annotation.examples)
    return own or any(map(has_examples, [*get_args(annotation), *getattr(annotation, "__metadata__", ())]))


def test_what_fedflat_fills_in_is_not_among_the_keys():
    """But users may give the file of code, and the number of clients of a file."""
    listed = [
        name
        for name, field in fields()
        if "filled in" in str(field.description) and not any(isinstance(mark, FilledIn) for mark in field.metadata)
    ]
    of_code = ["ArrayFunction", "OwnAnalysis", "UserFunction", "UserMetric", "UserModel"]
    assert sorted(listed) == sorted(["FromFile.clients", *(f"{one}.file" for one in of_code)])


def test_the_field_of_a_place():
    place = ("grid", "partition", 0, "dirichlet", "alpha")
    assert "concentration" in str(field_at(ExperimentFile, place).description)
    assert field_at(ExperimentFile, ("methods", "fedsam", "title")).description.startswith("name in tables")
    assert field_at(ExperimentFile, ("nothing",)) is None


def test_a_key_without_its_section_is_first_looked_for_in_the_grid():
    """The engine has seeds as well, and a search has a seed."""
    assert ExperimentFile.meant("seeds") == ExperimentFile.meant("seed") == "grid.seeds"
    assert ExperimentFile.meant("lr") == "training.lr"
    assert ExperimentFile.meant("nothing") is None


def test_the_opposite_is_not_suggested():
    assert "did you mean" not in str(unknown("partition", "non_iid", ["iid", "lda"]))
    assert "did you mean 'iid'" in str(unknown("partition", "idd", ["iid", "lda"]))
