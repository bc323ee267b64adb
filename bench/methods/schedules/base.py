"""Schedules: how a value changes from round to round. A rate, or a hyper-parameter that allows it, is multiplied by the
factor of its schedule."""

from abc import abstractmethod

from fedflat.bench.input.frozen import Frozen


class Schedule(Frozen):
    """A factor for each round. Rounds t are counted from 0, as in the methods' equations."""

    name: str

    @abstractmethod
    def factor(self, t: int, rounds: int) -> float:
        """The factor in round t of a run with this number of rounds; not negative."""

    def at(self, t: int, rounds: int) -> float:
        """The factor in round t. Analyses compute a round after the last one: it has the factor of the last one."""
        return self.factor(min(t, rounds - 1), rounds)
