"""A stand-in for CUDA graphs on a CPU: the operations of a function, repeated on the same memory.

As in a graph, nothing of the function's Python code runs again: every address, and every number that Python knew, is
what it was when the function was captured.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from fedflat.bench.engine.backends.graph import errors_of_capture
from fedflat.bench.engine.backends.rows import Rows
from fedflat.bench.engine.backends.static import Function


class Tape(TorchDispatchMode):
    """Records operations; `play` repeats them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[torch._ops.OpOverload, tuple[Any, ...], Mapping[str, Any], Any]] = []

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if torch.Tag.data_dependent_output in func.tags:
            raise RuntimeError("operation not permitted when stream is capturing")
        given, named = tree_map_only(
            Tensor, Tensor.detach, (args, kwargs or {})
        )  # shapes may be changed in place later
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, given, named, tree_map_only(Tensor, Tensor.detach, result)))
        return result

    def play(self) -> None:
        """Repeat the operations; new results take the place of the old ones."""
        for func, args, kwargs, result in self.calls:
            aliases = [returned.alias_info for returned in func._schema.returns]
            views = any(alias is not None and not alias.is_write for alias in aliases)
            if views or torch.Tag.inplace_view in func.tags:
                continue  # a view of memory that is filled by other operations
            again = func(*args, **kwargs)
            if not any(alias is not None for alias in aliases):
                for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                    if isinstance(old, Tensor):
                        old.copy_(new)


class Tapes:
    """Captures functions as tapes, and counts them."""

    def __init__(self) -> None:
        self.captured = 0
        self.replays = 0

    def __call__(self, function: Function) -> tuple[Rows, Callable[[], None]]:
        self.captured += 1
        with errors_of_capture(), torch.no_grad(), Tape() as tape:
            values = function()
        computed = True

        def replay() -> None:
            nonlocal computed
            if not computed:  # recording has computed it already, unlike the capture of a graph
                with torch.no_grad():
                    tape.play()
            computed = False
            self.replays += 1

        return values, replay
