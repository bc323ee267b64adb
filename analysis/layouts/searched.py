"""Which cells of an experiment with tuned values `fedflat tune` has searched, as the experiment's file states."""

from collections.abc import Mapping
from typing import Any

from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.schema import PartitionOverrides
from fedflat.bench.tuning.given import searched
from fedflat.bench.tuning.ranges import HYPERPARAMETERS, TRAINING


def is_searched(experiment: Experiment, cell: CellAddress) -> bool:
    """Whether a cell was searched. In a file of an earlier version, `where` has the winner's values in its setting, or
    all trials have failed.

    An entry of `where` without some of the searched values is none of a winner: the tuned experiment had it before.
    """
    tuned, method = experiment.tuned, cell.method
    if tuned is None or method not in tuned.ranges:
        return False
    label = cell.setting.where_labels[2 if experiment.parts else 1]  # as fedflat tune writes it
    if tuned.searched:
        return label in tuned.searched.get(method, ())
    if label in tuned.untuned.get(method, {}):
        return True
    entry = experiment.methods[method].where.get(label)
    return entry is not None and _searched_names(experiment, cell) <= _given_names(entry)


def _searched_names(experiment: Experiment, cell: CellAddress) -> set[str]:
    """The names of the cell's values that were searched; values that only other parts search are not among them."""
    assert experiment.tuned is not None
    places = searched(experiment, experiment.cell(cell.path))
    names = {place.removeprefix(TRAINING).removeprefix(HYPERPARAMETERS) for place in places}
    return names & set(experiment.tuned.ranges[cell.method])


def _given_names(entry: PartitionOverrides) -> set[str]:
    """The names of the values in an entry of `where`, such as lr, rho and swa.cycle."""
    given: Mapping[str, Any] = {**entry.training, **entry.hyperparameters}
    swa = given.get("swa")
    return {*given, *(f"swa.{name}" for name in (swa if isinstance(swa, Mapping) else ()))}
