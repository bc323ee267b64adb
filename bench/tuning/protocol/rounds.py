"""How many rounds a setting needs: the fewest with which each of the tried methods is fitted in one of its trials."""

from dataclasses import dataclass

from fedflat.bench.tuning.protocol.trial_results import best
from fedflat.bench.tuning.protocol.unit import Unit, words
from fedflat.bench.tuning.protocol.units import Units


@dataclass(frozen=True)
class Rounds:
    """The rule for one setting."""

    units: Units
    setting: str

    @property
    def chosen(self) -> int | None:
        """The number in the protocol; None as long as there is none."""
        return self.units.protocol.rounds.chosen[self.setting]

    def of(self, candidate: int) -> list[Unit]:
        """The units of a candidate."""
        methods = self.units.protocol.rounds.tried.methods
        return [self.units.of_rounds(self.setting, label, candidate) for label in methods]

    def result(self) -> int | None:
        """The fewest candidate rounds with which each method is fitted; the largest if there is none.

        None as long as trials are missing.
        """
        candidates = self.units.protocol.rounds.candidates
        for candidate in candidates:
            units = self.of(candidate)
            if not all(unit.has_ended for unit in units):
                return None
            if all(unit.winner.fitted for unit in units):
                return candidate
        return candidates[-1]

    def missing(self) -> list[Unit]:
        """The units of the next candidate whose trials are missing; none if the rule has a result."""
        for candidate in self.units.protocol.rounds.candidates if self.result() is None else ():
            if found := [unit for unit in self.of(candidate) if not unit.has_ended]:
                return found
        return []

    def lines(self) -> list[str]:
        """The result in words."""
        found, rule = self.result(), self.units.protocol.rounds
        lines = [
            f"{unit.name}: the best of {len(unit.rows)} is {words(winner)}"
            for candidate in rule.candidates
            for unit in self.of(candidate)
            if unit.has_ended
            for winner in best(unit.read(), 1)
        ]
        if found is None:
            return [*lines, f"{self.setting}: trials are missing"]
        fitted = all(unit.winner.fitted for unit in self.of(found))
        how = "each is fitted" if fitted else f"not fitted: pairs count within {rule.otherwise.within_points:g} points"
        return [
            *lines,
            f"{self.setting}: {found} rounds ({how}); set rounds.chosen.{self.setting} and training.rounds to it",
        ]
