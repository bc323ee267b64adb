"""How a paper's protocol is changed for an experiment: windows that suit shorter runs, another reported value."""

from typing import Any, TypeVar

from analysis.measures.convergence import FinalValue
from bench.experiments.experiment import Experiment
from bench.input.frozen import Frozen

Asked = TypeVar("Asked", bound=Frozen)


def fitted(asked: Asked, experiment: Experiment) -> Asked:
    """A layout, one of its columns or an analysis whose numbers of rounds fit runs at smoke scale: at most a quarter.

    Those are its `window`, its `every`, and the evaluations of its `final` value. What is taken over several stays so,
    over two at least; at a paper's own scale nothing changes.
    """
    if experiment.scale == "paper":
        return asked
    quarter = experiment.training.rounds // 4
    longest = {"window": max(2, quarter), "every": max(1, quarter)}
    changes: dict[str, Any] = {name: most for name, most in longest.items() if getattr(asked, name, 1) > most}
    final = getattr(asked, "final", None)
    if isinstance(final, FinalValue):
        changes["final"] = shortened(final, experiment)
    return asked.model_copy(update=changes)


def shortened(final: FinalValue, experiment: Experiment) -> FinalValue:
    """The reported value as `fitted` has it."""
    longest = max(2, experiment.training.rounds // 4)
    if experiment.scale == "paper" or final.n is None or final.n <= longest:
        return final
    return final.model_copy(update={"n": longest})


def reporting(asked: Asked, experiment: Experiment) -> Asked:
    """A layout that shows what the experiment's `report` says in place of its own `final` value, if it has one."""
    if experiment.report is None or not hasattr(asked, "final"):
        return asked
    return asked.model_copy(update={"final": FinalValue.named(experiment.report)})
