"""The protocol of a run: what must be equal in runs that are compared."""

import pytest

from fedflat.analysis.comparison.baselines import load
from fedflat.analysis.comparison.run_table import protocol
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"


def quick_run(cell: str = CELL, **changes: object) -> RunConfig:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return load_experiment("quick", keys).cell(cell).runs[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"training__lr": 0.2},
        {"training__lr_decay": 0.5},
        {"training__server_lr": 0.5},
        {"training__aggregation": "uniform"},
        {"training__clip": 3},
        {"training__weight_decay": 0.5},
        {"training__prox_split": True},
        {"evaluation__every": 7},
        {"methods__fedsam": {"hyperparameters": {"rho": 0.3}}},
        {"grid__seeds": [8]},
    ],
    ids=lambda c: next(iter(c)),
)
def test_a_methods_own_tuning_is_no_part_of_the_protocol(changes: dict[str, object]) -> None:
    assert quick_run(**changes).identity != quick_run().identity
    assert protocol(quick_run(**changes)) == protocol(quick_run())


@pytest.mark.parametrize(
    "changes",
    [
        {"training__rounds": 31},
        {"training__local_epochs": 1},
        {"training__local_steps": 10},
        {"training__batch_size": 8},
        {"training__drop_last": True},
        {"training__augmentation": {"name": "cutout", "size": 2}},
    ],
    ids=lambda c: next(iter(c)),
)
def test_what_must_be_shared_is_part_of_the_protocol(changes: dict[str, object]) -> None:
    assert protocol(quick_run(**changes)) != protocol(quick_run())


@pytest.mark.parametrize("grid", ["quick", "bench1d"])
def test_new_keys_leave_the_protocol_of_the_stored_baselines_as_it_was(grid: str) -> None:
    """Of each setting: the runs of users are compared with the stored ones in it."""
    setting = ["dataset", "partition", "participation"]
    stored = load(grid).runs[[*setting, "protocol"]].drop_duplicates()
    cells = load_experiment(grid).cells().values()
    settings = {cell.address.setting: cell.runs[0] for cell in cells}
    now = {(one.dataset, one.partition, one.participation): protocol(run) for one, run in settings.items()}
    assert {tuple(row[:3]): row[3] for row in stored.itertuples(index=False)}.items() <= now.items()


def test_the_engine_is_no_part_of_the_protocol() -> None:
    """Its settings change rounding only, and new ones would make stored baselines incomparable."""
    assert protocol(quick_run(engine__backend="loop", engine__checkpoint_seconds=0)) == protocol(quick_run())


def test_settings_are_part_of_the_protocol_and_methods_are_not() -> None:
    assert protocol(quick_run(CELL.replace("0.1", "0.6"))) != protocol(quick_run())
    assert protocol(quick_run(CELL.replace("4-of", "10-of"))) != protocol(quick_run())
    assert protocol(quick_run(CELL.replace("fedsam", "fedgf"))) == protocol(quick_run())


def test_the_place_of_images_is_no_part_of_the_protocol() -> None:
    one, other = ({"dataset": {"name": "image_folder", "root": f"/{place}/photos"}} for place in ("a", "b"))
    cell = "photos/dirichlet-0.1/4-of-20/fedsam"
    assert protocol(quick_run(cell, **one)) == protocol(quick_run(cell, **other))
    assert protocol(quick_run(cell, **one)) != protocol(quick_run())
