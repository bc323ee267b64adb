"""Compares what a run has stored with what is computed again: bit by bit, and by the size of the differences."""

import sys
from collections.abc import Mapping
from math import inf, isnan
from pathlib import Path

import torch
from torch import Tensor

from fedflat.bench.engine.federation import FederationState
from fedflat.bench.metrics.columns import metric_column
from fedflat.bench.numerics.precision import Precision
from fedflat.bench.training.calibration import TOLERANCE

POINT = 0.01
"""Rounding may change an accuracy, or another metric in percent, by one percentage point: a few images at the border
between two classes."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Differences:
    """Collects differences of a run in this precision.

    `largest` is the largest difference relative to what rounding can explain, 0 if all bits are the same. `place` is
    the file in which it is, `difference` says in words what differs.
    """

    def __init__(self, precision: Precision) -> None:
        self._rounding = TOLERANCE[precision]
        self.largest = 0.0
        self.place = Path()
        self.difference = ""

    @property
    def same_bits(self) -> bool:
        """Whether nothing differs."""
        return self.largest == 0

    @property
    def equal_up_to_rounding(self) -> bool:
        """Whether other rounding, as by another machine or another back end, explains all differences."""
        return self.largest <= 1

    def numbers(self, file: Path, when: str, stored: Mapping[str, float], again: Mapping[str, float]) -> None:
        """Compare named numbers; a missing one is NaN."""
        for name in (*stored, *(name for name in again if name not in stored)):
            a, b = (float(numbers.get(name, float("nan"))) for numbers in (stored, again))
            if a == b or (isnan(a) and isnan(b)):
                continue
            found = metric_column(name)
            counts = found is not None and found.unit in ("%", "points")
            allowed = 100 * POINT if counts else self._rounding * max(abs(a), abs(b))
            self._add(abs(a - b) / allowed, file, f"{name} of {when} is {a!r}, and {b!r} if computed again")

    def tensors(self, file: Path, stored: Mapping[str, Tensor], again: Mapping[str, Tensor]) -> None:
        """Compare named tensors of any number formats."""
        if other := sorted(stored.keys() ^ again.keys()):
            self._add(inf, file, f"{other[0]} is {'not computed again' if other[0] in stored else 'not stored'}")
            return
        for what, v in stored.items():
            self._tensor(file, what, v, again[what])

    def _tensor(self, file: Path, what: str, stored: Tensor, again: Tensor) -> None:
        stored, again = stored.cpu(), again.cpu()
        if stored.dtype != again.dtype or stored.shape != again.shape:
            self._add(inf, file, f"{what} has another shape or number format if computed again")
        elif not torch.equal(_bits(stored), _bits(again)):
            a, b = stored.double(), again.double()
            gap = float((a - b).abs().max() / a.abs().max())
            words = f"{what} differs by up to {gap:.1g} of its largest number if computed again"
            self._add(gap / self._rounding, file, words)

    def state(self, file: Path, stored: FederationState, again: FederationState) -> None:
        """Compare the model and the vectors of server and clients."""
        when = f"after round {again.round}"
        named, computed = (
            {f"the global model {when}": state.w}
            | {f"the server's {name} {when}": v for name, v in state.server.items()}
            for state in (stored, again)
        )
        self.tensors(file, named, computed)
        if sorted(stored.clients) != sorted(again.clients):
            self._add(inf, file, f"other clients have states {when} if computed again")
            return
        for client in stored.clients:
            named, computed = (
                {f"{name} of client {client} {when}": v for name, v in state.clients[client].items()}
                for state in (stored, again)
            )
            self.tensors(file, named, computed)

    def _add(self, size: float, file: Path, difference: str) -> None:
        size = inf if isnan(size) else max(size, sys.float_info.min)  # 0.0 and -0.0 have no distance, but other bits
        if size > self.largest:
            self.largest, self.place, self.difference = size, file, difference


def _bits(v: Tensor) -> Tensor:
    """The bits of a tensor as integers, so that NaN equals NaN."""
    return v.contiguous().view(_INTEGERS[v.dtype.itemsize])
