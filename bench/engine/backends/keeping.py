"""A back end that keeps the local models of its last call, for runs that write them to disk."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from torch import Tensor

from bench.engine.local import Backend, LocalResult, LocalTraining, LocalWork, Probe


class Keeping:
    """Another back end's results, as they are. What is kept are the models w_i⁺ `[P]` of that call's clients alone."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._models: Mapping[int, Mapping[int, Tensor]] = {}

    def train(self, local: LocalTraining, works: Sequence[LocalWork], probe: Probe | None = None) -> list[LocalResult]:
        """As `Backend`."""
        results = self._backend.train(local, works, probe)
        models: defaultdict[int, dict[int, Tensor]] = defaultdict(dict)
        for work, result in zip(works, results, strict=True):
            models[work.seed][work.client] = result.w
        self._models = models
        return results

    def models(self, seed: int) -> Mapping[int, Tensor]:
        """By client, those of the run of this seed."""
        return self._models[seed]
