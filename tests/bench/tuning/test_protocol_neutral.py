"""At its first point each method is its base, which the protocol presumes: two rounds of both give the same model."""

import pytest
import torch
from torch import Tensor

from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.training.run_setup import RunSetup
from fedflat.bench.tuning.protocol.plan import NEUTRAL
from fedflat.bench.tuning.protocol.reading import SearchedGrid
from fedflat.bench.tuning.protocol.trial_results import Planned, TrialResult
from fedflat.bench.tuning.protocol.units import Units
from fedflat.bench.tuning.trials import value_at, with_values

ROUNDS = 2

pytestmark = pytest.mark.usefixtures("data_folder")


@pytest.fixture(scope="module")
def small() -> Experiment:
    return load_experiment("flat1d", {"training.rounds": ROUNDS, "training.local_steps": 2})


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Units:
    return Units(SearchedGrid.read("flat1d"), tmp_path_factory.mktemp("results"))


def trained(small: Experiment, label: str, values: dict[str, object]) -> Tensor:
    """The model after two rounds with these values."""
    [path] = [path for path in small.paths() if path.endswith(f"/{label}")]
    setup = RunSetup.build(with_values(small.cell(path).runs[0], values), torch.device("cpu"))
    state = setup.federation.start(setup.objective.initial())
    for _ in range(ROUNDS):
        state, _ = setup.federation.run_round(state, setup.active(state))
    return setup.federation.evaluated(state)


@pytest.mark.parametrize("label", list(SearchedGrid.read("flat1d").protocol.methods))
def test_a_method_at_its_first_point_is_its_base(small: Experiment, units: Units, label: str) -> None:
    unit = units.of("main", label, 1000)
    assert unit.of_base is not None
    base = unit.of_base
    values = {place: value_at(base.base, place) for place in base.plan.ranges} | {"training.lr": 0.3}
    ends = dict.fromkeys(values, (0.0, 1.0))
    result = TrialResult(0, Planned("base", values, ends), 100.0, 50.0, fitted=True, distance=1.0)
    again = TrialResult(1, Planned("confirm base", values, ends, again=0), 100.0, 50.0, fitted=True, distance=1.0)
    [first, *_] = unit.plan.batch(NEUTRAL, (), [result, again])
    own = trained(small, label, first.values)
    expected = trained(small, base.plan.label, values)
    assert torch.equal(own, expected) or torch.allclose(own, expected, rtol=0, atol=1e-6)
    assert not torch.equal(expected, torch.zeros_like(expected))
    swept = units.protocol.methods[label]
    other = {unit.plan.places[swept.value]: swept.values[-1], **first.values}
    other |= {unit.plan.places[swept.value]: swept.values[-1]}
    if swept.value == "rho":
        assert not torch.allclose(trained(small, label, other), expected, atol=1e-4), "another point has an effect"
