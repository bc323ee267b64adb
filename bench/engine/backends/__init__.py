"""Back ends of local training, one per module: the same numbers up to rounding, at different speeds."""

from bench.engine.backends.cohort import Cohort
from bench.engine.backends.graph import Graph
from bench.engine.backends.loop import Loop
from bench.engine.backends.parallel import Parallel
from bench.engine.local import Backend

BACKENDS: dict[str, type[Backend]] = {"loop": Loop, "parallel": Parallel, "cohort": Cohort, "graph": Graph}
"""By name."""
