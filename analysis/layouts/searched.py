"""Which cells of an experiment with tuned values `fedflat tune` has searched, as the experiment's file states."""

from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment


def is_searched(experiment: Experiment, cell: CellAddress) -> bool:
    """Whether a cell was searched. In files of earlier versions, such a cell has values, or the reason for none."""
    tuned, method = experiment.tuned, cell.method
    if tuned is None or method not in tuned.ranges:
        return False
    label = cell.setting.where_labels[2 if experiment.parts else 1]  # as fedflat tune writes it
    if tuned.searched:
        return label in tuned.searched.get(method, ())
    return label in tuned.untuned.get(method, {}) or label in experiment.methods[method].where
