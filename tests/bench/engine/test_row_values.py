"""Runs with different hyper-parameters in one cohort: each is trained with its own, whoever else is there."""

from typing import Annotated

import pytest
from torch import Tensor

from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.local import Backend
from fedflat.bench.engine.method_costs import example
from fedflat.bench.engine.row_values import SLOTS, searched_numbers
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.methods.base import CannotBatchError, Perturbation, along
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.methods.marks import Search
from fedflat.bench.methods.recipe import Components, Recipe
from fedflat.bench.training.run_setup import RunSetup
from tests.bench.engine.rounds_of_backends import CPU, SINGLE, close, same_bits, share_of_update
from tests.problems import Problem, joint_round
from tests.tape import Tapes
from tests.tiers import METHODS

FACTORS = (1.0, 0.7, 0.4)
"""Of the example's values, in each of three runs; all ranges begin at zero or below."""
ROUNDS = 6


def varied(method: str, factor: float) -> dict:
    """The example's values, with those that a search varies times this factor."""
    values, components = example(CATALOG[method]), CATALOG[method].components.by_slot()
    searched = {name for slot in SLOTS for name in searched_numbers(components[slot])}
    return values | {name: values[name] * factor for name in searched & values.keys()}


Runs = list[tuple[Federation, Tensor]]
"""Federations with their initial parameters, which the loop overwrites in the module."""


def started(*own: Federation) -> Runs:
    return [(federation, federation.objective.initial()) for federation in own]


def runs_of(method: str) -> Runs:
    problem = Problem(1, rounds=ROUNDS)
    return started(
        *(
            problem.federation(
                method, varied(method, factor), lr=0.1 * factor, weight_decay=0.02 * factor, lr_decay=0.95, clip=2.0
            )
            for factor in FACTORS
        )
    )


def by_row(backend: Cohort | None = None) -> Cohort:
    backend = backend or Cohort()
    backend.by_row = True
    return backend


def ends(runs: Runs, backend: Backend, rounds: int = ROUNDS) -> list[FederationState]:
    """The states after rounds in which all runs are trained together."""
    states, federations = [federation.start(w) for federation, w in runs], [federation for federation, _ in runs]
    for active in Problem(1, rounds=rounds).some():
        states = [state for state, _ in joint_round(federations, states, [active] * len(runs), backend)]
    return states


@pytest.mark.parametrize("method", METHODS)
def test_each_run_has_its_own_values_and_the_same_bits_in_any_company(method):
    runs = runs_of(method)
    company, fewer = ends(runs, by_row()), ends(runs[1:], by_row())
    for one, state in zip(runs, company, strict=True):
        [alone] = ends([one], by_row())
        assert same_bits(state, alone)
        [loop] = ends([one], Loop())
        close(state, loop)
    assert all(same_bits(one, other) for one, other in zip(company[1:], fewer, strict=True))


def test_the_loop_trains_each_run_as_it_is_alone_to_the_bit():
    runs = runs_of("fedspeed")
    for one, together in zip(runs, ends(runs, Loop(), 2), strict=True):
        [alone] = ends([one], Loop(), 2)
        assert same_bits(alone, together)


@pytest.mark.parametrize("method", ["fedsmoo", "fedtoga", "fedmoswa"])
def test_graphs_take_values_by_row(method):
    runs = runs_of(method)
    tapes = Tapes()
    for one, state in zip(runs, ends(runs, by_row(Graph(tapes))), strict=True):
        close(state, ends([one], Loop())[0])
    assert tapes.replays > tapes.captured > 0


def test_a_cohort_refuses_different_values_that_are_not_by_row():
    with pytest.raises(CannotBatchError, match="by row"):
        ends(runs_of("fedavg"), Cohort(), 1)


class Branching(Perturbation):
    """Decides by its own radius, as a user's method might."""

    name = "branching"
    rho: Annotated[float, Search(low=0.01, high=1)] = 0.1

    def delta(self, w, gradient, client):
        return along(gradient(w), self.rho) if self.rho > 0 else 0 * w


def test_a_method_that_branches_on_a_value_is_reported():
    recipe = Recipe("own", "Own", "a test", Components(Branching))
    runs = started(*(Problem(1).federation(recipe, {"rho": rho}) for rho in (0.1, 0.2)))
    with pytest.raises(CannotBatchError):
        ends(runs, by_row(), 1)


@pytest.mark.parametrize("method", ["fedspeed", "fedwmsam"])
def test_networks_in_float32_have_the_same_bits_in_any_company(method):
    def built(factor: float) -> Federation:
        values = {f"methods.{method}.hyperparameters.{name}": v for name, v in varied(method, factor).items()}
        changes = {"training.local_epochs": 1, "training.lr": 0.1 * factor, **values}
        cell = load_experiment("quick_catalog", changes).cell(f"digits/dirichlet-0.1/4-of-20/{method}")
        return RunSetup.build(cell.runs[0], CPU).federation

    runs = started(*(built(factor) for factor in FACTORS))
    company = ends(runs, by_row(), 3)
    for one, state in zip(runs, company, strict=True):
        [alone], [fixed] = ends([one], by_row(), 3), ends([one], Cohort(), 3)
        assert same_bits(state, alone)
        assert share_of_update(fixed, state, one[1]) < SINGLE
