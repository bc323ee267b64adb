"""A federation on tensors that a user gives, without files: what they must be, and how they become one."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from fedflat.bench.code.user_code import reason
from fedflat.bench.data.dataset import Batches, DeviceData, Samples
from fedflat.bench.data.partitions.base import Indices, Partition
from fedflat.bench.engine.batches import LocalSteps
from fedflat.bench.engine.federation import Federation
from fedflat.bench.engine.objective import Objective
from fedflat.bench.engine.own_inputs import Inputs, check_like_first, dtype_name, in_format_of, own_samples
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.input.arguments import Argument, shown
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.method import Method
from fedflat.bench.models.user_model import trained_parameters, unusual
from fedflat.bench.numerics.streams import numpy_stream


@dataclass(frozen=True)
class OwnData:
    """The samples of all clients, the indices of each client's samples, and how inputs become those of the model."""

    data: DeviceData
    split: Sequence[Indices]
    inputs: Inputs

    @classmethod
    def of_clients(cls, objective: Objective, clients: Sequence[object]) -> "OwnData":
        """From the inputs and labels of each client. A `UserError` if they do not fit each other, or the model."""
        given = {f"client {i}": own_samples(f"client {i}", client) for i, client in enumerate(clients)}
        if not given:
            raise UserError("clients is empty (allowed: inputs and labels of at least one client)")
        for name, (x, _) in given.items():
            check_like_first(name, x, given["client 0"][0])
        w, (first, _) = objective.initial(), given["client 0"]
        edges = np.cumsum([0, *(len(y) for _, y in given.values())])
        kind = w.dtype if first.is_floating_point() else first.dtype
        x = torch.empty((edges[-1], *first.shape[1:]), dtype=kind, device=w.device)
        for (name, (own, _)), a, b in zip(given.items(), edges[:-1], edges[1:], strict=True):
            x[a:b] = in_format_of(w, name, own)
        y = torch.cat([own for _, own in given.values()]).to(w.device)
        return cls._of(objective, x, y, [np.arange(a, b) for a, b in pairwise(edges)], given)

    @classmethod
    def partitioned(cls, objective: Objective, data: object, partition: Partition, seed: int) -> "OwnData":
        """From all inputs and labels, divided as in a run with this partition and seed; a `UserError` as above."""
        x, y = own_samples("clients", data)
        samples = Samples(np.empty((len(y), 0), np.uint8), y.cpu().numpy())  # partitions look at labels only
        whole = cls._of(objective, x, y, [], {"clients": (x, y)})
        return replace(whole, split=partition.split(samples, numpy_stream(seed, "partition")))

    @classmethod
    def _of(
        cls,
        objective: Objective,
        x: Tensor,
        y: Tensor,
        split: Sequence[Indices],
        given: Mapping[str, tuple[Tensor, Tensor]],
    ) -> "OwnData":
        """A `UserError` if the labels of the samples `given` by name are no classes of the model."""
        inputs, (first, *_) = Inputs.of(x), given
        data = inputs.on(first, x, y, objective.initial())
        _check_labels(objective, inputs, data, {name: own for name, (_, own) in given.items()})
        return cls(data, split, inputs)

    def test_batches(self, objective: Objective, test: object, batch_size: int) -> Batches:
        """Batches of test samples, with inputs as in training; a `UserError` if they do not fit model and clients."""
        x, y = own_samples("test", test)
        self.inputs.check("test", x)
        return _batches(objective, "test", self.inputs, x, y, batch_size)


def own_model(model: object) -> nn.Module:
    """The model; a `UserError` if this is no module, for example the class of one, or if it cannot be trained."""
    if not isinstance(model, nn.Module):
        raise UserError(f"the model is {shown(model)} (allowed: an instance of torch.nn.Module)")
    trained_parameters(model)
    return model


Model = Annotated[nn.Module, Argument("an instance of torch.nn.Module", own_model)]


def copied(model: nn.Module) -> nn.Module:
    """A copy of a model; a `UserError` if it has parts that cannot be copied."""
    try:
        return deepcopy(model)
    except Exception as error:  # the user's modules may hold anything
        raise UserError(f"the model cannot be copied: {reason(error)}") from None


def federation_on(
    method: Method,
    objective: Objective,
    data: OwnData,
    step_settings: StepSettings,
    local_steps: LocalSteps,
    seed: int,
    rounds: int | None = None,
) -> Federation:
    """The federation of the clients, in the model's number format and on its device."""
    sizes = [len(own) for own in data.split]
    sampler = local_steps.sampler(data.split, seed)
    return Federation(method, objective, data.data, sampler, sizes, step_settings, seed, rounds=rounds)


def own_batches(objective: Objective, name: str, data: object, batch_size: int) -> Batches:
    """Batches of inputs and labels with this name, on the model's device; a `UserError` if they do not fit it.

    Bytes are refused: only `simulate` knows the training data, whose mean and deviation normalise them.
    """
    x, y = own_samples(name, data)
    if x.dtype == torch.uint8:
        raise UserError(
            f"{name}: inputs have the dtype uint8, which training normalises (allowed: the inputs that the model "
            "received, such as result.inputs(x) of a simulation; or whole numbers in int64)"
        )
    return _batches(objective, name, Inputs.of(x), x, y, batch_size)


def _batches(objective: Objective, name: str, inputs: Inputs, x: Tensor, y: Tensor, batch_size: int) -> Batches:
    data = inputs.on(name, x, y, objective.initial())
    _check_labels(objective, inputs, data, {name: y})
    return Batches(data, batch_size)


def _check_labels(objective: Objective, inputs: Inputs, data: DeviceData, labels: Mapping[str, Tensor]) -> None:
    """A `UserError` unless the labels, by name, are class numbers of the model's scores of the data's inputs."""
    which, x = next(iter(labels)), data.inputs(data.images[:2])
    shape = _shape_of_scores(objective, which, x, inputs.hint)
    if len(shape) != 2 or shape[0] != len(x) or shape[1] < 2:
        raise UserError(
            f"{which}: the model maps inputs {list(x.shape)} to scores {shape} "
            f"(allowed: [{len(x)}, number of classes], with at least two classes)"
        )
    for name, y in labels.items():
        if y.min() < 0 or y.max() >= shape[1]:
            raise UserError(f"{name}: labels are {y.min()} to {y.max()} (allowed: integers 0 to {shape[1] - 1})")


def _shape_of_scores(objective: Objective, name: str, x: Tensor, hint: str) -> list[int]:
    """The shape of the scores of inputs x `[B, ...]`; a `UserError` if the model fails, or cannot be trained."""
    model = copied(objective.module).eval()  # modules may record calls
    try:
        with torch.enable_grad():
            scores = model(x)
    except Exception as error:  # a user-defined model may fail in any way
        raise UserError(
            f"{name}: the model fails for inputs of the shape {list(x.shape)}: {reason(error)}{hint}"
        ) from None
    if not isinstance(scores, Tensor) or unusual(scores) or not scores.is_floating_point():
        kind = f"{dtype_name(scores.dtype)} {unusual(scores)}" if isinstance(scores, Tensor) else type(scores).__name__
        raise UserError(f"{name}: the model maps inputs to {kind} (allowed: a tensor of floating-point scores)")
    if not scores.requires_grad:
        raise UserError("the model's scores do not depend on its parameters, so there is nothing to train")
    return list(scores.shape)
