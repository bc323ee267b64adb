"""What jobs request on a cluster: more for more work, more at each attempt, and enough for the runs that exist."""

import math

import pytest

from fedflat.analysis.analyses import load_analyses
from fedflat.analysis.planning.demands import LONGEST_MINUTES, Demand, of_analysis, of_training
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig

CELL = "digits/dirichlet-0.1/4-of-20/fedsam"


def runs(**overrides: object) -> tuple[RunConfig, ...]:
    return load_experiment("quick", {key.replace("__", "."): value for key, value in overrides.items()}).cell(CELL).runs


def a_millisecond(_: object) -> float:
    return 1e-3


def of(*, threads: int = 1, gpu: bool = False, **overrides: object) -> Demand:
    return of_training(runs(**overrides), a_millisecond, threads, gpu=gpu)


def test_an_attempt_requests_more_than_the_one_before_up_to_a_day() -> None:
    demand = Demand(seconds=3600, bytes=2**30)
    assert [demand.minutes(attempt) for attempt in (1, 2, 3)] == [181, 362, 543]
    assert [demand.mebibytes(attempt) for attempt in (1, 2, 3)] == [1024, 2048, 3072]
    assert demand.minutes(9) == LONGEST_MINUTES
    assert Demand(0, 0).minutes(1) == 1, "Slurm takes 0 as no limit"


def test_the_time_of_a_training_follows_its_rounds_seeds_and_threads() -> None:
    one = of(training__rounds=100)
    assert of(training__rounds=200).seconds == pytest.approx(2 * one.seconds, rel=0.1)
    assert of(training__rounds=100, grid__seeds=[0]).seconds == pytest.approx(one.seconds / 3)
    assert of(training__rounds=100, threads=8).seconds < one.seconds
    assert of(training__rounds=100, gpu=True).seconds == one.seconds, "a small model gains nothing on a GPU"
    assert of(training__rounds=100, gpu=True, model="resnet18_gn").seconds < one.seconds


def test_the_memory_of_a_training_follows_its_model_and_batches() -> None:
    small, large = (of(model=name, dataset="digits").bytes for name in ("cnn_gn", "resnet18_gn"))
    assert 2 * 2**30 < small < large
    assert small < 3 * 2**30
    assert of(model="resnet18_gn", threads=8).bytes > large
    assert of(model="resnet18_gn", training__batch_size=32).bytes > large


def test_the_memory_for_images_is_bounded() -> None:
    """Landmarks has 28 GB of images, which are not in memory at once."""
    overrides = {"dataset": "landmarks_user_160k", "model": "mobilenet_v2_gn", "training.batch_size": 1}
    cell = load_experiment("quick", overrides).cell(CELL.replace("digits", "landmarks_user_160k"))
    assert of_training(cell.runs, a_millisecond, 1, gpu=True).bytes == (4 + 8) * 2**30


def test_every_analysis_has_a_finite_demand() -> None:
    for analysis in load_analyses("quick").values():
        for gpu in (False, True):
            demand = of_analysis(runs(), analysis, a_millisecond, 1, gpu=gpu)
            assert 0 < demand.seconds < math.inf
            assert demand.bytes > 2**31


def test_an_analysis_of_photographs_fits_into_the_memory_of_a_machine() -> None:
    dataset = {"name": "officehome", "test_domain": "art"}
    changed = {"dataset": dataset, "model": "mobilenet_v2_gn", "grid.partition": [{"name": "iid", "clients": 20}]}
    photographs = load_experiment("quick", changed).cell("officehome-art/iid/4-of-20/fedsam").runs
    analysis = load_analyses("quick")["hessian"]
    assert of_analysis(photographs, analysis, a_millisecond, 1, gpu=False).bytes < 20 * 2**30
