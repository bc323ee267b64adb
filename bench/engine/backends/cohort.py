"""All clients of a round in one batched call: torch.func.vmap over the training of one client; best on a GPU.

Clients are rows, sorted by descending number of local steps, so the rows that still train are always the first ones. A
mini-batch that is shorter than others of the same step is filled up with samples of weight zero. If the loss or the
model combines several samples, the rows are computed in groups of equal batch size instead.
"""

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from fedflat.bench.engine.backends.inputs import RoundInputs, RoundPlan, RoundShape, with_own_values
from fedflat.bench.engine.backends.prepared import Prepared
from fedflat.bench.engine.backends.rows import Rows, apply, concatenate, leaves, take, to_device
from fedflat.bench.engine.local import LocalResult, LocalTraining, LocalWork, MiniBatchGradient, Probe, after_the_start
from fedflat.bench.methods.base import CannotBatchError, ClientRound
from fedflat.bench.models.dropout import GivenDraws
from fedflat.bench.models.network import Variables


class Cohort:
    """The back end with one batched call for all clients of one federation, or of several.

    These differ in their seeds; if `by_row`, also in learning rates, and in the values of row_values.py. The choice
    changes a run's rounding, so it must not depend on which runs are trained together.
    """

    warm_up: int = 1

    def __init__(self) -> None:
        self.by_row = False
        self._prepared = Prepared(self._groups)

    def prepare(self, local: LocalTraining, works: Sequence[LocalWork]) -> None:
        """See `Backend`."""
        self._prepared.prepare(local, works)

    def train(self, local: LocalTraining, works: Sequence[LocalWork], probe: Probe | None = None) -> list[LocalResult]:
        """See `Backend`. Raises `CannotBatchError` for methods, models and probes that work with one client only."""
        if probe is not None:
            raise CannotBatchError("probes watch one client at a time")
        if local.objective.buffers is not None:
            raise CannotBatchError("the model has buffers, which change during training")
        found: dict[int, LocalResult] = {}
        for group in self._prepared.take(local, works):
            own = [works[row] for row in group.rows]
            inputs = RoundInputs.of(local, own, group.starts, group.plan)
            found |= zip(group.rows, self.compute(local, inputs), strict=True)
        return [found[row] for row in range(len(works))]

    def _groups(self, local: LocalTraining, works: Sequence[LocalWork]) -> "list[_Group]":
        """The works in descending order of their numbers of steps; those with the same names of states form a group."""
        starts = [work.start(own.method) for work, own in zip(works, with_own_values(local, works), strict=True)]
        groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for row in sorted(range(len(works)), key=lambda row: -len(works[row].batches)):
            groups[tuple(sorted(starts[row]))].append(row)  # some methods have a state only from the second round on
        return [
            _Group(
                rows,
                [starts[row] for row in rows],
                RoundPlan.of(local, [works[row] for row in rows], by_row=self.by_row),
            )
            for rows in groups.values()
        ]

    def compute(self, local: LocalTraining, inputs: RoundInputs) -> list[LocalResult]:
        """The results of the rows."""
        computation = CohortRound(local, inputs.shape, self.mapped)
        return computation.results(computation(inputs))

    def mapped(self, function: Callable[..., Rows], *rows: Rows) -> Rows:
        """The function of one row, applied to all rows."""
        return mapped(function, *rows)


@dataclass(frozen=True)
class _Group:
    """Works that one call trains: their positions, the states of their clients, and the plan of their batches."""

    rows: list[int]
    starts: list[Rows]
    plan: RoundPlan


class CohortRound:
    """A round's local training as functions of tensors: start, one local step, finish.

    `mapped` applies a function of one row to all rows.
    """

    def __init__(self, local: LocalTraining, shape: RoundShape, mapped: Callable[..., Rows]) -> None:
        self.local = local
        self.shape = shape
        self._mapped = mapped
        self.separable = local.is_separable
        self.gradient_calls = [0] * shape.steps
        """The number of gradients in each step."""
        self.teachers = len(local.method.loss.active_teachers())
        self.sends_w = False
        """Whether clients send w_i⁺ itself."""
        self._before: Counter[int | None] = Counter()
        """Of each row, the gradients before the first step on the mini-batch of a step; None: passes over all data."""

    def __call__(self, inputs: RoundInputs) -> Rows:
        """The results of the rows: `w`, `model`, `loss` (summed over steps), `state`, `upload`."""
        with errors_of_batching():
            return self._train(inputs)

    def results(self, ends: Rows) -> list[LocalResult]:
        """One result per row; the vectors are views of the rows."""
        rows = range(len(self.shape.batches))
        earlier = [self._samples_before(row) for row in rows]
        local = [ends["w"][row] for row in rows]
        sent = local if self.sends_w else [ends["model"][row] for row in rows]
        return [
            LocalResult(
                w=local[row],
                model=sent[row],
                steps=len(sizes),
                upload={name: v[row] for name, v in ends["upload"].items()},
                state={name: v[row] for name, v in ends["state"].items()},
                loss=ends["loss"][row] / len(sizes),
                gradient_samples=sum(calls * size for calls, size in zip(self.gradient_calls, sizes, strict=False))
                + earlier[row],
                teacher_samples=self.teachers * (sum(sizes) + earlier[row]),
            )
            for row, sizes in enumerate(self.shape.batches)
        ]

    def _samples_before(self, row: int) -> int:
        """The samples of the gradients of a row before its first step."""
        sizes = dict(enumerate(self.shape.batches[row])) | {None: sum(self.shape.passes[row])}
        return sum(count * sizes.get(step, 0) for step, count in self._before.items())

    def start(self, inputs: RoundInputs, rows: Rows, state: Rows) -> Rows:
        """What the first step begins with: `w`, `loss`, `scratch`, `state`, `upload`."""

        def of_a_client(local: LocalTraining, client: ClientRound, _: Rows) -> Rows:
            for component in local.method:
                component.start(client)
            w = client.w_global
            return self._carried(client, w, w.new_zeros(()))

        return self._each(inputs, of_a_client, rows, {"state": state, "scratch": {}, "upload": {}})

    def step(
        self, inputs: RoundInputs, rows: Rows, carried: Rows, batch: Rows, number: int | Tensor
    ) -> tuple[Rows, int]:
        """What the next step begins with, and the number of gradients in this step, which has this number."""
        calls = 0

        def of_a_client(local: LocalTraining, client: ClientRound, carried: Rows, batch: Rows) -> Rows:
            nonlocal calls
            client.step = number
            gradient = _DrawnGradient(local, client, batch)
            w = local.step(carried["w"], client, gradient)
            calls = gradient.calls
            return self._carried(client, w, carried["loss"] + gradient.loss)

        return self._each(inputs, of_a_client, rows, carried, batch), calls

    def finish(self, inputs: RoundInputs, rows: Rows, carried: Rows) -> Rows:
        """The results after the last step."""

        def of_a_client(local: LocalTraining, client: ClientRound, carried: Rows) -> Rows:
            for component in local.method:
                component.finish(carried["w"], client)
            model = local.method.correction.uploaded_model(carried["w"], client)
            self.sends_w = model is carried["w"]
            ends = self._carried(client, carried["w"], carried["loss"])
            return {name: ends[name] for name in ("w", "loss", "state", "upload")} | {"model": model}

        return self._each(inputs, of_a_client, rows, carried)

    def _each(
        self, inputs: RoundInputs, function: Callable[..., Rows], rows: Rows, carried: Rows, *others: Rows
    ) -> Rows:
        """The function of a client, applied to the clients of all rows; gradients before the first step are counted.

        It gets the local training with the values of the row, the client, and what is given of its row.
        """
        before, calls = Counter(self._before), 0

        def of_a_row(row: Rows, carried: Rows, *others: Rows) -> Rows:
            nonlocal calls
            calls += 1
            local = self.local.with_values({**inputs.rate, **row}["values"])
            return function(local, self._client(local, inputs, row, carried), carried, *others)

        ends = self._mapped(of_a_row, rows, carried, *others)
        self._before = Counter({k: before[k] + (count - before[k]) // calls for k, count in self._before.items()})
        return ends

    def batch(self, own: Rows, dropout: Rows) -> Rows:
        """Augmented inputs `[R, B, ...]`, targets `[R, B]` (or `[R, B, C]`), weights and dropout draws of a step.

        `own` has the `index` and `weights` `[R, B]`, and the augmentations' `draws` `[R, B, ...]`.
        """
        rows, size = own["index"].shape
        x, y = self.local.batch(own["index"].flatten())
        if self.local.augment is not None:
            x, y = self.local.augment(x, y, {name: draw.flatten(0, 1) for name, draw in own["draws"].items()})
        return {
            "x": x.unflatten(0, (rows, size)),
            "y": y.unflatten(0, (rows, size)),
            "weights": own["weights"],
            "dropout": dropout,
        }

    def _train(self, inputs: RoundInputs) -> Rows:
        rows = self.rows(inputs)
        carried = self.start(inputs, rows, inputs.state)
        ended: list[Rows] = []
        for step in range(self.shape.steps):
            still, training = len(self.shape.sizes(step)), len(rows["row"])
            if still < training:
                done = slice(still, training)
                ended.append(self.finish(inputs, take(rows, done), take(carried, done)))
                rows, carried = take(rows, slice(still)), take(carried, slice(still))
            carried = self._step(inputs, rows, carried, step)
        ended.append(self.finish(inputs, rows, carried))
        return concatenate(ended[::-1])

    def rows(self, inputs: RoundInputs) -> Rows:
        """What the functions of a row get of each row."""
        rows = dict(inputs.rows) if self.shape.shared else {**inputs.rows, "broadcast": inputs.broadcast}
        return rows | {"row": torch.arange(len(rows["steps"]), device=rows["steps"].device)}

    def _step(self, inputs: RoundInputs, rows: Rows, carried: Rows, step: int) -> Rows:
        """One local step of all rows that have this step."""
        sizes = self.shape.sizes(step)
        own = _cut(inputs.steps, step, len(sizes), max(sizes))
        batch = self.batch(own, take(inputs.dropout.get(step, {}), slice(len(sizes))))
        if len(set(sizes)) == 1 or self.separable:
            carried, self.gradient_calls[step] = self.step(inputs, rows, carried, batch, step)
            return carried
        groups = dict(_equal(sizes))
        places: Rows = {size: torch.tensor(group) for size, group in groups.items()}
        places["back"] = torch.cat(list(places.values())).argsort()
        places = to_device(places, batch["x"].device)
        parts = []
        for size in groups:
            cut = apply(lambda tensor: tensor[:, :size], take(batch, places[size]))  # noqa: B023 - used at once
            own_rows, own_carried = take(rows, places[size]), take(carried, places[size])
            part, self.gradient_calls[step] = self.step(inputs, own_rows, own_carried, cut, step)
            parts.append(part)
        return take(concatenate(parts), places["back"])

    def _client(self, local: LocalTraining, inputs: RoundInputs, row: Rows, carried: Rows) -> ClientRound:
        broadcast = inputs.broadcast if self.shape.shared else row["broadcast"]
        client = ClientRound(
            seed=0,
            round=inputs.rate["round"],
            id=None,
            w_global=broadcast["w"],
            received=broadcast["vectors"],
            state=dict(carried["state"]),
            first_time=row["first_time"],
            lr={**inputs.rate, **row}["lr"],
            steps=row["steps"],
            full_rate_steps=row["full_rate_steps"],
            participants=row["participants"],
            layout=local.objective.layout,
            input_shape=local.input_shape,
            full_gradient=lambda w: self._full_gradient(w, local, client, inputs, row["row"]),
            mini_batch_gradient=(
                after_the_start
                if "w" in carried
                else lambda w, step: self._mini_batch_gradient(w, step, local, client, inputs, row["row"])
            ),
            noise=row["noise"],
            scratch=dict(carried["scratch"]),
            upload=dict(carried["upload"]),
        )
        return client

    def _full_gradient(
        self, w: Tensor, local: LocalTraining, client: ClientRound, inputs: RoundInputs, row: Tensor
    ) -> Tensor:
        """∇F_i(w) over all of the client's data. Each batch is prepared for all rows; the client selects its row."""
        if not any(component.needs_full_gradient() for component in self.local.method):
            raise CannotBatchError("a component that calls full_gradient must declare takes_full_gradient = True")
        if not self.separable:
            raise CannotBatchError("full gradients in a cohort need a loss that is a mean over samples")
        if not inputs.passes:
            raise CannotBatchError("in a CUDA graph, full gradients are possible at the start of a round only")
        total, w = torch.zeros_like(w), of_its_own(w, client)
        rows = len(self.shape.passes)
        for k in range(len(inputs.passes["index"])):
            size = max(sizes[k] for sizes in self.shape.passes if k < len(sizes))
            own = _cut(inputs.passes, k, rows, size)
            batch = self.batch(own, take(inputs.pass_dropout.get(k, {}), slice(rows)))
            total = total + _DrawnGradient(local, client, _of_row(batch, row))(w)
        self._before[None] += 1
        return total

    def _mini_batch_gradient(
        self, w: Tensor, step: int, local: LocalTraining, client: ClientRound, inputs: RoundInputs, row: Tensor
    ) -> Tensor:
        """∇F_i(w) on the mini-batch of a local step; zero if the client has fewer steps, because its weights are."""
        if not any(component.takes_mini_batch_gradient for component in self.local.method):
            raise CannotBatchError(
                "a component that calls mini_batch_gradient must declare takes_mini_batch_gradient = True"
            )
        if not self.separable:
            raise CannotBatchError("mini-batch gradients before the first step need a loss that is a mean over samples")
        self._before[step] += 1
        if step >= self.shape.steps:
            return torch.zeros_like(w)
        rows, sizes = len(self.shape.batches), self.shape.sizes(step)
        own = _cut(inputs.steps, step, rows, max(sizes))
        batch = self.batch(own, take(inputs.dropout.get(step, {}), slice(rows)))
        return _DrawnGradient(local, client, _of_row(batch, row))(of_its_own(w, client))

    @staticmethod
    def _carried(client: ClientRound, w: Tensor, loss: Tensor) -> Rows:
        """The values that one step passes on to the next."""
        return {"w": w, "loss": loss, "scratch": client.scratch, "state": client.state, "upload": client.upload}


class _DrawnGradient(MiniBatchGradient):
    """The mini-batch gradient of a row, with its dropout masks."""

    def __init__(self, local: LocalTraining, client: ClientRound, batch: Rows) -> None:
        objective = local.objective

        def teach(x: Tensor) -> Variables:
            received = {name: of_its_own(client.received[name], client) for name in local.method.loss.active_teachers()}
            return local.teach(objective, received, x)

        super().__init__(
            objective.functional_gradients, local.method.loss, batch["x"], batch["y"], batch["weights"],
            client.scratch, teach,
        )  # fmt: skip
        self._objective = objective
        self._draws = GivenDraws(list(batch["dropout"].values()))

    def __call__(self, w: Tensor) -> Tensor:
        with self._objective.drawing(self._draws):
            return super().__call__(w)


def of_its_own(w: Tensor, client: ClientRound) -> Tensor:
    """A vector that all rows may share, as one of the row's own, without a change of bits.

    For a shared one, vmap computes one product of matrices for all rows, whose rounding depends on the number of rows.
    """
    return torch.where(client.first_time, w, w)


def _of_row(batch: Rows, row: Tensor) -> Rows:
    """The part of a batch of all rows that belongs to one row; v[row] would wait for the number."""
    return apply(lambda v: v.index_select(0, row.view(1))[0], batch)


def mapped(function: Callable[..., Rows], *rows: Rows) -> Rows:
    """The function of one row, applied to all rows at once.

    A single row is computed twice: for one row, libraries use other kernels, which round differently, and a run's bits
    would depend on the number of rows that are trained together.
    """
    alone = len(next(leaves(rows[0]))) == 1
    given = [apply(lambda tensor: torch.cat([tensor, tensor]), part) for part in rows] if alone else rows
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")  # attention's rows one after another
        ends: Rows = vmap(function)(*given)
    return take(ends, slice(1)) if alone else ends


@contextmanager
def errors_of_batching() -> Iterator[None]:
    """Turns the errors that vmap raises, for branches on values and unsupported operations, into `CannotBatchError`."""
    try:
        yield
    except RuntimeError as error:
        if "vmap" in str(error) or "functorch" in str(error):
            raise CannotBatchError(str(error).splitlines()[0]) from error
        raise


def _cut(batches: Rows, step: int, rows: int, size: int) -> Rows:
    """The part of `RoundInputs.steps` or `passes` for one step, the first rows, and batches of this size."""
    return apply(lambda tensor: tensor[step, :rows, :size], batches)


def _equal(sizes: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Each size, and the rows of this size."""
    groups = defaultdict(list)
    for row, size in enumerate(sizes):
        groups[size].append(row)
    yield from groups.items()
