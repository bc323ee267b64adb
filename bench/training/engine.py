"""Local training as an engine's choice says, until a round is not possible so: then a simpler choice replaces it."""

from collections.abc import Callable, Sequence

import torch

from fedflat.bench.engine.local import LocalResult, LocalTraining, LocalWork
from fedflat.bench.engine.objective import Objective
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.base import CannotBatchError
from fedflat.bench.training.engine_choice import EngineChoice


class Engine:
    """Trains clients of one method by the chosen back end.

    If a batched back end cannot compute a round, a simpler one replaces it from this round on; if memory does not
    suffice, it computes fewer clients at once. `announce` is called with a reason in words, then with the new choice.
    """

    def __init__(
        self,
        objectives: Sequence[Objective],
        choice: EngineChoice,
        requested: str,
        announce: Callable[[str | EngineChoice], None],
    ) -> None:
        """`requested`: the back end of the settings, which no other one may replace unless it is auto."""
        self._objectives = objectives
        self._requested = requested
        self._announce = announce
        self._use(choice)

    def _use(self, choice: EngineChoice) -> None:
        self.choice = choice
        self._backend = choice.prepare(self._objectives)
        self._announce(choice)

    def prepare(self, local: LocalTraining, works: Sequence[LocalWork]) -> None:
        """See `Backend.prepare`."""
        self._backend.prepare(local, works)

    def train(self, local: LocalTraining, works: Sequence[LocalWork]) -> list[LocalResult]:
        """The results in the order of `works`, which belong to one round."""
        while True:
            try:
                return self._backend.train(local, works)
            except (CannotBatchError, torch.OutOfMemoryError) as error:
                choice, reason = self._instead(error, len(works))
            # Not before the error, which holds the tensors of the round, is gone:
            self._announce(reason)
            if local.objective.device.type == "cuda":
                torch.cuda.empty_cache()
            self._use(choice)

    def _instead(self, error: CannotBatchError | torch.OutOfMemoryError, clients: int) -> tuple[EngineChoice, str]:
        """The choice for a round with these clients that has failed, and the reason in words; the error if none."""
        if isinstance(error, CannotBatchError):
            other = self.choice.simpler()
            reason = f"this round is not possible in a {self.choice.backend}: {error}"
        else:
            other = self.choice.smaller(clients)
            reason = f"not enough memory: {str(error).partition('. ')[0]}"
        if other is None:
            raise error
        if other.backend != self.choice.backend and self._requested != "auto":
            raise UserError(f"engine.backend {self.choice.backend} is not possible here: {reason}") from None
        return other, reason
