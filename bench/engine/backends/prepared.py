"""The host's part of a round, computed before it is needed: while the device computes the round before."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, TypeVarTuple, cast

T = TypeVar("T")
Given = TypeVarTuple("Given")


class Prepared(Generic[*Given, T]):
    """The value of a function: computed when it is needed, or before, if the arguments are known then."""

    def __init__(self, function: Callable[[*Given], T]) -> None:
        self._function = function
        self._ready: tuple[tuple[*Given], T | None, Exception | None] | None = None

    def prepare(self, *given: *Given) -> T | None:
        """Compute the value for one later `take`. None after an error, which that `take` raises."""
        try:
            self._ready = given, self._function(*given), None
        except Exception as error:
            self._ready = given, None, error
            return None
        return self._ready[1]

    def take(self, *given: *Given) -> T:
        """The value for these arguments; what was prepared for others is dropped."""
        ready, self._ready = self._ready, None
        if ready is None or not _same(ready[0], given):
            return self._function(*given)
        _, value, error = ready
        if error is None:
            return cast(T, value)
        try:
            raise error
        finally:
            del ready, error  # the error refers to this frame, and to the tensors of the failed computation


def _same(prepared: Any, given: Any) -> bool:
    """Whether these are the same objects, or lists of the same objects in the same order."""
    if isinstance(given, list | tuple):
        return len(prepared) == len(given) and all(map(_same, prepared, given))
    return prepared is given
