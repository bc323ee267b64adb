"""Run configurations of a grid that share their equal sections.

A grid has many more cells than different sections: each is validated and stored once, in a fraction of the time and
memory.
"""

from fedflat.bench.experiments.resolving import Data
from fedflat.bench.experiments.run_config import RunConfig


class SharedSections:
    """Parses the configurations of one experiment, whose user-defined files are read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], object] = {}

    def parse(self, config: Data, seed: int, where: str) -> RunConfig:
        """The configuration of a run; errors as those of `RunConfig.parse`."""
        # What is filled into one of these two sections depends on the other.
        together = repr((config["method"], config["training"]))
        keys = {
            name: (name, together if name in ("method", "training") else repr(fields))
            for name, fields in config.items()
        }
        known = {name: self._known.get(key, config[name]) for name, key in keys.items()}
        run = RunConfig.parse({**known, "seed": seed}, where)
        self._known |= {key: getattr(run, name) for name, key in keys.items()}
        return run
