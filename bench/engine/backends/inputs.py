"""What the computation of a cohort's round reads beside the data set: made on the host, moved to the device once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.engine.backends.rows import Rows, apply, stack
from bench.engine.local import LocalTraining, LocalWork
from bench.engine.objective import dropout_shapes
from bench.engine.streams import numpy_stream, torch_seed
from bench.models.dropout import KeyedDraws


@dataclass(frozen=True)
class RoundShape:
    """What decides the shapes of a round's tensors: each row's batch sizes, of its local steps and of its pass over all
    data (empty where no method part asks for one), and whether all rows start from one model."""

    plans: tuple[tuple[int, ...], ...]
    passes: tuple[tuple[int, ...], ...]
    shared: bool

    @property
    def steps(self) -> int:
        """Those of the row that has most."""
        return max(map(len, self.plans))

    @property
    def pass_batches(self) -> int:
        """Batches in the longest pass over all data."""
        return max(map(len, self.passes))

    def sizes(self, step: int) -> list[int]:
        """Batch sizes of the rows that have such a step, which are the first ones; step −1−k is batch k of the pass
        over all data, where 0 means that the row has no such batch."""
        if step < 0:
            return [sizes[-1 - step] if -1 - step < len(sizes) else 0 for sizes in self.passes]
        return [plan[step] for plan in self.plans if step < len(plan)]


@dataclass(frozen=True)
class RoundInputs:
    """`sent` is one client's where all rows start alike, else one row each; `mini_batches` are by step."""

    shape: RoundShape
    sent: Rows
    rows: Rows
    state: Rows
    rate: Rows
    mini_batches: dict[int, Rows]

    @classmethod
    def of(cls, local: LocalTraining, works: Sequence[LocalWork]) -> "RoundInputs":
        """For works in descending order of their numbers of steps."""
        first, w = works[0], works[0].sent.model
        asks = any(part.takes_full_gradient for part in local.method)
        shape = RoundShape(
            plans=tuple(tuple(map(len, work.plan)) for work in works),
            passes=tuple(tuple(map(len, work.one_pass)) if asks else () for work in works),
            shared=all(work.sent is first.sent for work in works),
        )
        sent = [{"w": work.sent.model, "vectors": dict(work.sent.vectors)} for work in works]
        rows: Rows = {
            "first_time": torch.tensor([work.first_time for work in works]),
            "steps": torch.tensor([len(plan) for plan in shape.plans], dtype=w.dtype),
        }
        rate: Rows = {"lr": torch.tensor(first.lr, dtype=w.dtype), "round": torch.tensor(first.round, dtype=w.dtype)}
        steps = [*range(shape.steps), *(-1 - k for k in range(shape.pass_batches))]
        return cls(
            shape=shape,
            sent=sent[0] if shape.shared else stack(sent),
            rows=_to(rows, w.device),
            state=stack([work.start(local.method) for work in works]),
            rate=_to(rate, w.device),
            mini_batches={step: _to(_mini_batch(local, works, shape, step), w.device) for step in steps},
        )

    def tensors(self) -> Rows:
        """All of them, by the names of the fields."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "shape"}

    def with_tensors(self, tensors: Rows) -> "RoundInputs":
        """Inputs of the same shape that hold these tensors."""
        return replace(self, **tensors)


def _to(rows: Rows, device: torch.device) -> Rows:
    return apply(lambda tensor: tensor.to(device, non_blocking=True), rows)


def _mini_batch(local: LocalTraining, works: Sequence[LocalWork], shape: RoundShape, step: int) -> Rows:
    """One step's sample indices `[R, B]`, their weights `[R, B]`, and random draws, filled up with zeros.

    The weights of a row sum to 1; over the whole pass, where it is one over all data.
    """
    sizes = shape.sizes(step)
    index = np.zeros((len(sizes), max(sizes)), dtype=np.int64)
    weights = np.zeros((len(sizes), max(sizes)))
    for row, size in enumerate(sizes):
        if size:
            index[row, :size] = (works[row].plan[step] if step >= 0 else works[row].one_pass[-1 - step]).numpy()
            weights[row, :size] = 1 / (size if step >= 0 else sum(shape.passes[row]))
    found: Rows = {"index": torch.from_numpy(index), "weights": torch.from_numpy(weights).to(local.objective.dtype)}
    if local.augment is not None:
        key = [(work.seed, "augmentation", work.round, work.client, step) for work in works[: len(sizes)]]
        drawn = [local.augment.draw(numpy_stream(*k), size) for k, size in zip(key, sizes, strict=True)]
        found["draws"] = {name: _filled([draws[name] for draws in drawn], max(sizes)) for name in drawn[0]}
    if local.objective.has_dropout:
        found["dropout"] = dict(enumerate(_dropout(local, works, sizes, step)))
    return found


def _filled(arrays: Sequence[NDArray[Any]], count: int) -> Tensor:
    """Arrays `[B_r, ...]` as one tensor `[R, B, ...]`."""
    out = np.zeros((len(arrays), count, *arrays[0].shape[1:]), dtype=arrays[0].dtype)
    for row, array in enumerate(arrays):
        out[row, : len(array)] = array
    return torch.from_numpy(out)


def _dropout(local: LocalTraining, works: Sequence[LocalWork], sizes: Sequence[int], step: int) -> Iterator[Tensor]:
    """`[R, B, ...]` for each dropout layer: what each client alone would draw, on the device where it would."""
    device, w = local.objective.device, local.objective.dtype
    shapes = dropout_shapes(local.objective, torch.zeros((1, *local.input_shape), dtype=w, device=device))
    layers = [torch.zeros((len(sizes), max(sizes), *shape), device=device) for shape in shapes]
    for row, (work, size) in enumerate(zip(works, sizes, strict=False)):
        draws = KeyedDraws(lambda: torch_seed(work.seed, "dropout", work.round, work.client, step), device)  # noqa: B023 - used at once
        draws.restart()
        for layer in layers:
            layer[row, :size] = draws.uniform(layer[row, :size])
    yield from layers
