"""A cohort's round on tensors whose memory stays in place, so that its parts can be captured once and then replayed.

The start, one local step and the finish are functions without arguments, which read and write this memory. The first
time that a function is needed it is simply called, which initialises libraries; the second time it is captured; from
then on it is replayed. So there are few functions, whatever the number of steps, of clients, and of their samples:

- Functions compute the first n rows, where n is one of few numbers. Rows that are not needed compute something that
  nobody reads; rows that have no such step keep their values.
- All mini-batches have the size of the largest one in the round. Samples that a mini-batch does not have get the weight
  zero.
- The first step has a function of its own, because some methods have more tensors from the second step on.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedflat.bench.engine.backends.cohort import CohortRound, errors_of_batching
from fedflat.bench.engine.backends.inputs import RoundInputs
from fedflat.bench.engine.backends.rows import Rows, apply, leaves, structure, take
from fedflat.bench.engine.local import LocalResult, LocalTraining
from fedflat.bench.methods.base import CannotBatchError

Function = Callable[[], Rows]
Capture = Callable[[Function], tuple[Rows, Callable[[], None]]]
"""Returns the tensors that a function returns, and a replay of it. Their values are those of the latest replay."""

PREFERRED = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)


def computed_rows(count: int) -> int:
    """The number of rows that are computed for this number of clients: at most a third more.

    It does not depend on other rounds, so that a resumed run gives the same bits. At least two, because a single row
    would be computed twice (see `mapped`).
    """
    larger = (n * scale for scale in (1, 10, 100, 1000, 10_000) for n in PREFERRED)
    return next(number for number in (2, 3, 4, 5, 6, 8, *larger) if number >= count)


class StaticRound:
    """The local training of up to `rows` clients in mini-batches of up to `batch` samples.

    All rounds have the same `form` as `inputs`.
    """

    def __init__(
        self,
        local: LocalTraining,
        inputs: RoundInputs,
        rows: int,
        batch: int,
        capture: Capture,
        mapped: Callable[..., Rows],
    ) -> None:
        self._local, self._capture, self._mapped = local, capture, mapped
        self.rows, self.batch = computed_rows(rows), batch
        self._own = CohortRound(local, inputs.shape, mapped)
        own_rows = self._own.rows(inputs)
        if inputs.shape.shared:
            broadcast = apply(torch.empty_like, inputs.broadcast)
        else:
            own_rows["broadcast"] = broadcast = self._places(inputs.broadcast)
        own_rows |= {name: self._places(value) for name, value in inputs.rows.items()}
        own_rows["row"] = torch.arange(self.rows, device=own_rows["row"].device)
        self._rows: Rows = own_rows
        self._inputs = replace(
            inputs,
            broadcast=broadcast,
            state=apply(self._place, inputs.state),
            rate=apply(torch.empty_like, inputs.rate),
            steps=apply(lambda v: v.new_zeros(self.rows, batch, *v.shape[3:]), inputs.steps),
            dropout=apply(lambda v: v.new_zeros(self.rows, batch, *v.shape[2:]), inputs.dropout.get(0, {})),
            passes={},
            pass_dropout={},
        )
        self._step = inputs.rate["round"].new_zeros(())
        self._carried: Rows = {"state": self._inputs.state}
        self._started: Rows = {}
        self._stepped: Rows = {}
        self._calls: dict[bool, int] = {}
        self._ready: dict[Any, tuple[Rows, Callable[[], None]] | None] = {}

    @staticmethod
    def form(inputs: RoundInputs) -> tuple[Any, ...]:
        """Everything that is fixed, apart from the largest numbers of rows and samples."""
        shared = inputs.shape.shared
        return (
            shared,
            structure(inputs.broadcast, 0 if shared else 1),
            structure(inputs.state, 1),
            structure(inputs.steps, 3),
            structure(inputs.dropout.get(0, {}), 2),
        )

    def __call__(self, inputs: RoundInputs) -> list[LocalResult]:
        """The results of the rows of a round."""
        shape, computation = inputs.shape, CohortRound(self._local, inputs.shape, self._mapped)
        with errors_of_batching():
            self._begin(computation, inputs)
            for step in range(shape.steps):
                self._take_step(inputs, step)
                computation.gradient_calls[step] = self._calls[step > 0]
            ends = self._run(("finish", computed_rows(len(shape.batches))), self._finish(len(shape.batches)))
        computation.sends_w = self._own.sends_w
        return computation.results(apply(lambda v: v[: len(shape.batches)].clone(), ends))

    def _begin(self, computation: CohortRound, inputs: RoundInputs) -> None:
        count = len(inputs.shape.batches)
        own = self._inputs
        given = [(own.rate, inputs.rate), (own.state, inputs.state), (own.broadcast, inputs.broadcast)]
        given += [({name: self._rows[name] for name in inputs.rows}, inputs.rows)]
        for places, values in given:
            apply(_copy, places, values)
        apply(Tensor.zero_, own.steps)  # zeros are valid for every size of mini-batch; draws of earlier rounds are not
        if any(c.needs_full_gradient() or c.takes_mini_batch_gradient for c in self._local.method):
            # not captured: a round has another number of mini-batches each time, and a graph only those of one step
            self._started = self._store(computation.start(inputs, computation.rows(inputs), inputs.state), count)
            return

        def start() -> Rows:
            rows = computed_rows(count)
            started = self._own.start(own, take(self._rows, slice(rows)), take(own.state, slice(rows)))
            self._started = self._store(started, rows)
            return {}

        self._run(("start", computed_rows(count)), start)

    def _take_step(self, inputs: RoundInputs, step: int) -> None:
        """Copy the step's mini-batches to their places, then compute the step."""
        shape, own = inputs.shape, self._inputs
        sizes, count = shape.sizes(step), len(shape.batches)
        rows = computed_rows(len(sizes))
        given = min(rows, count)
        apply(lambda place, v: _copy(place, v[step, :given]), own.steps, inputs.steps)
        apply(lambda place, v: _copy(place, v[:given]), own.dropout, inputs.dropout.get(step, {}))
        self._step.fill_(step)
        size = inputs.steps["index"].shape[2] if self._own.separable else max(sizes)
        first, some_have_ended = step == 0, len(sizes) < given

        def compute() -> Rows:
            which = slice(rows)
            before = take(self._started if first else self._stepped, which)
            cut, dropout = (apply(lambda v: v[:rows, :size].contiguous(), part) for part in (own.steps, own.dropout))
            batch = self._own.batch(cut, dropout)
            number = 0 if first else self._step
            after, self._calls[not first] = self._own.step(own, take(self._rows, which), before, batch, number)
            if first:
                self._stepped = self._store(after, rows)
            elif structure(after) != structure(before):
                raise CannotBatchError("a client's tensors change their names or shapes after its second step")
            else:
                self._store(_where(cut["weights"].ne(0).any(1), after, before) if some_have_ended else after, rows)
            return {}

        self._run(("step", first, rows, size, some_have_ended), compute)

    def _finish(self, count: int) -> Function:
        def finish() -> Rows:
            which = slice(computed_rows(count))
            return self._own.finish(self._inputs, take(self._rows, which), take(self._stepped, which))

        return finish

    def _run(self, key: Any, function: Function) -> Rows:
        """Call, capture or replay a function."""
        if key not in self._ready:
            self._ready[key] = None
            return function()
        ready = self._ready[key]
        if ready is None:
            ready = self._ready[key] = self._capture(function)
        values, replay = ready
        replay()
        return values

    def _place(self, rows: Tensor) -> Tensor:
        """Zeros in the place of rows `[R, ...]`."""
        return rows.new_zeros(self.rows, *rows.shape[1:])

    def _places(self, value: Any) -> Any:
        return apply(self._place, value) if isinstance(value, dict) else self._place(value)

    def _store(self, values: Rows, count: int) -> Rows:
        """Copy the first rows to their places, and return the places of these names."""
        places = self._named(values, self._carried)
        storages = {place.untyped_storage().data_ptr() for place in leaves(self._carried)}
        moves: list[tuple[Tensor, Tensor]] = []
        for place, v in zip(leaves(places), leaves(values), strict=True):
            if place.shape[1:] != v.shape[1:] or place.dtype != v.dtype:
                raise CannotBatchError("a client's tensors change their shapes during a round")
            if _is_same(v, place):
                continue
            inside = v.untyped_storage().data_ptr() in storages  # another place, which may be overwritten before
            moves.append((place[:count], v.clone() if inside else v))
        for place, v in moves:
            place.copy_(v[:count])
        return places

    def _named(self, values: Rows, places: Rows) -> Rows:
        """The places for values, which are made when they are first needed."""
        for name, value in values.items():
            if isinstance(value, dict):
                places.setdefault(name, {})
            elif name not in places:
                places[name] = self._place(value)
        return {
            name: self._named(value, places[name]) if isinstance(value, dict) else places[name]
            for name, value in values.items()
        }


def _copy(place: Tensor, values: Tensor) -> Tensor:
    """Copy values to the beginning of a place, which may be larger in the first two dimensions."""
    return place[tuple(slice(size) for size in values.shape)].copy_(values)


def _where(rows: Tensor, after: Rows, before: Rows) -> Rows:
    """The values after a step in the marked rows, those before it in the others."""
    return apply(
        lambda a, b: a if _is_same(a, b) else torch.where(rows.view(-1, *[1] * (a.ndim - 1)), a, b), after, before
    )


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether these are the same numbers in memory, apart from the number of rows."""
    return one.data_ptr() == other.data_ptr() and one.stride() == other.stride()
