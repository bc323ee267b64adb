"""The inputs of a cohort's round, apart from the data set: prepared on the host, transferred to the device once."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedflat.bench.engine.backends.rows import Rows, stack, to_device
from fedflat.bench.engine.local import AUGMENTATION, AUGMENTATION_OF_PASS, LocalTraining, LocalWork
from fedflat.bench.engine.objective import dropout_shapes
from fedflat.bench.methods.base import CannotBatchError
from fedflat.bench.methods.method import RoundValues
from fedflat.bench.models.dropout import KeyedDraws
from fedflat.bench.numerics.streams import torch_seed

BatchSizes = tuple[tuple[int, ...], ...]
"""Each row's batch sizes."""


@dataclass(frozen=True)
class RoundShape:
    """The numbers that determine the shapes of a round's tensors.

    `batches`: batch sizes of the local steps; `passes`: those of the pass over all data (empty if no component needs
    one); `shared`: all rows start from the same model.
    """

    batches: BatchSizes
    passes: BatchSizes
    shared: bool

    @property
    def steps(self) -> int:
        """The number of local steps of the first row, which has the most steps."""
        return len(self.batches[0])

    @property
    def is_even(self) -> bool:
        """Whether, in every step, all mini-batches have the same size."""
        return all(len(set(self.sizes(step))) == 1 for step in range(self.steps))

    def sizes(self, step: int) -> list[int]:
        """Batch sizes of the rows that have this step, which are the first rows."""
        return [sizes[step] for sizes in self.batches if step < len(sizes)]


@dataclass(frozen=True)
class RoundPlan:
    """The part of a round's inputs that does not depend on the models: which samples, and random numbers.

    `rows` and `rate` are described in `ClientRound`, `values` in `LocalWork`; `steps` and `passes` in `RoundInputs`.
    `lr` and `values` belong to `rate`, which is the same for all rows, or to `rows`, with one number `[R]` per row.
    """

    shape: RoundShape
    rows: Rows
    rate: Rows
    steps: Rows
    passes: Rows

    @classmethod
    def of(cls, local: LocalTraining, works: Sequence[LocalWork], *, by_row: bool = False) -> "RoundPlan":
        """The plan for works in descending order of their numbers of steps.

        `by_row`: each row has a learning rate and values of its own. Otherwise a `CannotBatchError` if they differ.
        """
        first, dtype = works[0], local.objective.dtype
        if not by_row and any((work.lr, work.own) != (first.lr, first.own) for work in works):
            raise CannotBatchError("runs with different hyper-parameters need values by row")
        own = with_own_values(local, works)
        local = own[0]
        takes_pass = any(component.needs_full_gradient() for component in local.method)
        shape = RoundShape(
            batches=tuple(tuple(map(len, work.batches)) for work in works),
            passes=tuple(tuple(map(len, work.one_pass)) if takes_pass else () for work in works),
            shared=all(work.broadcast is first.broadcast for work in works),
        )
        host: Rows = {
            "rows": {
                "first_time": torch.tensor([work.first_time for work in works]),
                "steps": torch.tensor([len(sizes) for sizes in shape.batches], dtype=dtype),
                "full_rate_steps": torch.tensor(
                    [one.full_rate_steps(len(sizes)) for one, sizes in zip(own, shape.batches, strict=True)],
                    dtype=dtype,
                ),
                "participants": torch.tensor([work.participants for work in works], dtype=dtype),
                "noise": stack([work.noise(one.method) for work, one in zip(works, own, strict=True)]),
            },
            "rate": {"round": torch.tensor(first.round, dtype=dtype)},
            "steps": _batches(local, works, shape.batches, AUGMENTATION),
            "passes": _batches(local, works, shape.passes, AUGMENTATION_OF_PASS) if takes_pass else {},
        }
        if by_row:
            host["rows"] |= stack([_rate(work.lr, work.all_values, dtype) for work in works])
        else:
            host["rate"] |= _rate(first.lr, first.values, dtype)
        return cls(shape, **to_device(host, local.objective.device))


def _rate(lr: float, values: RoundValues, dtype: torch.dtype) -> Rows:
    """A learning rate and values of hyper-parameters as tensors of one number."""
    numbers = {slot: {name: torch.tensor(v, dtype=dtype) for name, v in own.items()} for slot, own in values.items()}
    return {"lr": torch.tensor(lr, dtype=dtype), "values": numbers}


def with_own_values(local: LocalTraining, works: Sequence[LocalWork]) -> list[LocalTraining]:
    """The local training of each work, with the values of its run and its round."""
    known: dict[tuple[int, int], LocalTraining] = {}
    found = []
    for work in works:
        key = id(work.own), id(work.values)
        if key not in known:
            known[key] = local.with_values(work.all_values)
        found.append(known[key])
    return found


@dataclass(frozen=True)
class RoundInputs:
    """The tensors of a round. `broadcast` has one entry if all rows start from the same model, else one per row.

    `steps` and `passes` hold `index`, `weights` `[K, R, B]`, and the augmentations' draws `[K, R, B, ...]` as `draws`;
    `dropout` and `pass_dropout`, by step and layer, `[R, B, ...]`. Steps and samples that a row does not have are zero.
    """

    shape: RoundShape
    broadcast: Rows
    state: Rows
    rows: Rows
    rate: Rows
    steps: Rows
    passes: Rows
    dropout: Rows
    pass_dropout: Rows

    @classmethod
    def of(
        cls, local: LocalTraining, works: Sequence[LocalWork], states: Sequence[Rows], plan: RoundPlan
    ) -> "RoundInputs":
        """The inputs for the works of a plan, and for the states of their clients."""
        broadcast = [{"w": work.broadcast.model, "vectors": dict(work.broadcast.vectors)} for work in works]
        shape, dropped = plan.shape, local.objective.has_dropout
        return cls(
            shape=shape,
            broadcast=broadcast[0] if shape.shared else stack(broadcast),
            state=stack(states),
            rows=plan.rows,
            rate=plan.rate,
            steps=plan.steps,
            passes=plan.passes,
            dropout=_dropout(local, works, shape.batches, lambda k: k) if dropped else {},
            pass_dropout=_dropout(local, works, shape.passes, lambda k: -1 - k) if dropped else {},
        )


@functools.lru_cache(maxsize=512)
def _places(sizes: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each sample of consecutive mini-batches of these sizes: its mini-batch, and its position in it."""
    return np.repeat(np.arange(len(sizes)), sizes), np.concatenate([np.arange(size) for size in sizes])


def _batches(local: LocalTraining, works: Sequence[LocalWork], batch_sizes: BatchSizes, purpose: str) -> Rows:
    """Sample indices, weights and draws of every step. A row's weights sum to 1, over each local step or over a whole
    pass."""
    shape = (max(map(len, batch_sizes)), len(batch_sizes), max(map(max, batch_sizes)))
    index, weights = np.zeros(shape, dtype=np.int64), np.zeros(shape)
    draws: dict[Any, NDArray[Any]] = {}
    for row, (work, sizes) in enumerate(zip(works, batch_sizes, strict=True)):
        step, place = _places(sizes)
        own = work.host_batches(local.augment, purpose)
        index[step, row, place] = own["index"].numpy()
        weights[step, row, place] = 1 / (np.array(sizes)[step] if purpose == AUGMENTATION else len(step))
        for name, drawn in own["draws"].items():
            draw = drawn.numpy()
            filled = draws.setdefault(name, np.zeros((*shape, *draw.shape[1:]), dtype=draw.dtype))
            filled[step, row, place] = draw
    return {
        "index": torch.from_numpy(index),
        "weights": torch.from_numpy(weights).to(local.objective.dtype),
        "draws": {name: torch.from_numpy(draw) for name, draw in draws.items()},
    }


def _dropout(
    local: LocalTraining, works: Sequence[LocalWork], batch_sizes: BatchSizes, numbered: Callable[[int], int]
) -> Rows:
    """The draws of each client for each dropout layer, on the same device and with the same keys as in `Loop`."""
    device = local.objective.device
    shapes = dropout_shapes(local.objective, local.blank)
    found: Rows = {}
    for k in range(max(map(len, batch_sizes))):
        sizes = [row_sizes[k] if k < len(row_sizes) else 0 for row_sizes in batch_sizes]
        layers = [torch.zeros((len(batch_sizes), max(sizes), *shape), device=device) for shape in shapes]
        for row, (work, size) in enumerate(zip(works, sizes, strict=True)):
            seed = torch_seed(work.seed, "dropout", work.round, work.client, numbered(k))
            draws = KeyedDraws(functools.partial(int, seed), device)
            draws.restart()
            for layer in layers:
                layer[row, :size] = draws.uniform(layer[row, :size])
        found[k] = dict(enumerate(layers))
    return found
