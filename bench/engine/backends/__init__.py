"""Back ends of local training, one per module: the same numbers up to rounding, at different speeds."""

from fedflat.bench.engine.backends.branches import Branches
from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.backends.loop import Loop
from fedflat.bench.engine.backends.parallel import Parallel
from fedflat.bench.engine.local import Backend

BACKENDS: dict[str, type[Backend]] = {
    "loop": Loop, "parallel": Parallel, "cohort": Cohort, "graph": Graph, "branches": Branches,
}  # fmt: skip
"""By name."""

COHORTS = tuple(name for name, backend in BACKENDS.items() if issubclass(backend, Cohort))
"""Those that compute all active clients in one call."""
GRAPHS = tuple(name for name, backend in BACKENDS.items() if issubclass(backend, Graph))
"""Those that need an NVIDIA GPU."""
