"""Back ends of local training, one per module: the same numbers up to rounding, at different speeds."""

from collections.abc import Callable

from bench.engine.backends.cohort import Cohort
from bench.engine.backends.graph import Graph
from bench.engine.backends.loop import Loop
from bench.engine.backends.parallel import Parallel
from bench.engine.local import Backend

BACKENDS: dict[str, Callable[[int], Backend]] = {
    "loop": lambda threads: Loop(),
    "parallel": Parallel,
    "cohort": lambda threads: Cohort(),
    "graph": lambda threads: Graph(),
}
"""By name, for a number of threads."""
