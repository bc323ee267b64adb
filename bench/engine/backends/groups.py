"""A back end that trains a limited number of clients at a time, for lack of memory."""

from collections.abc import Sequence

from fedflat.bench.engine.local import Backend, LocalResult, LocalTraining, LocalWork, Probe


class Groups:
    """Another back end, which gets at most `rows` clients at a time."""

    def __init__(self, backend: Backend, rows: int) -> None:
        self._backend = backend
        self._rows = rows
        self.warm_up: int = backend.warm_up

    def prepare(self, local: LocalTraining, works: Sequence[LocalWork]) -> None:
        """See `Backend`. For the first group; a GPU computes while the host prepares the others."""
        self._backend.prepare(local, works[: self._rows])

    def train(self, local: LocalTraining, works: Sequence[LocalWork], probe: Probe | None = None) -> list[LocalResult]:
        """See `Backend`."""
        groups = [works[begin : begin + self._rows] for begin in range(0, len(works), self._rows)]
        return [result for group in groups for result in self._backend.train(local, group, probe)]
