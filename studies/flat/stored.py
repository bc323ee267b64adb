"""What a search by a protocol has found, with all that its page shows."""

from functools import cached_property

import pandas as pd

from fedflat.analysis.comparison.flat.stored import CROSSED, Stored
from fedflat.analysis.comparison.flat.units import units
from fedflat.bench.experiments.experiment import load_experiment
from studies.flat.winners import winners


class StoredSearchOfPage(Stored):
    """The stored results of a grid's protocol, and what is stored with other values, data or amounts of work."""

    @cached_property
    def crossed(self) -> pd.DataFrame:
        """The runs with the values of the next tuning seed."""
        return self.runs_of(f"_{CROSSED}")

    @cached_property
    def equal_compute(self) -> dict[str, pd.DataFrame]:
        """The units of the rows of equal compute, by name."""
        found = {name: self.runs_of(f"_{name}") for name in self.protocol.equal_compute}
        return {name: units(runs, self.protocol.fitted.least) for name, runs in found.items() if len(runs)}

    @cached_property
    def contrasts(self) -> dict[str, pd.DataFrame]:
        """The units of experiments with other data and the same values, by name."""
        sources = {name: self.searched.source(source) for name, source in self.protocol.contrasts.items()}
        found = {name: self.stored_in(load_experiment(source).name) for name, source in sources.items()}
        return {name: units(runs, self.protocol.fitted.least) for name, runs in found.items() if len(runs)}

    @cached_property
    def references(self) -> pd.DataFrame:
        """The runs of experiments with their own values."""
        sources = map(self.searched.source, self.protocol.references.values())
        found = [runs for source in sources if len(runs := self.stored_in(load_experiment(source).name))]
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame()

    @cached_property
    def won(self) -> pd.DataFrame:
        """The winners of the searches."""
        return pd.DataFrame() if self.trials is None else winners(self.trials)
