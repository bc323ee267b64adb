"""Numbers of rounds that suit a paper's runs, cut down where runs are much shorter."""

from typing import TypeVar

from bench.experiments import Experiment
from bench.frozen import Frozen

Asked = TypeVar("Asked", bound=Frozen)


def fitted(asked: Asked, experiment: Experiment) -> Asked:
    """A layout or an analysis whose `window` and `every` fit runs at smoke scale: at most a quarter of their rounds.

    What is a window stays one, of two evaluations at least; at a paper's own scale nothing changes.
    """
    if experiment.scale == "paper":
        return asked
    quarter = experiment.training.rounds // 4
    longest = {"window": max(2, quarter), "every": max(1, quarter)}
    return asked.model_copy(update={name: most for name, most in longest.items() if getattr(asked, name, 1) > most})
