"""A user's arrays: what they must be, and how they become training and test samples."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedflat.bench.data.dataset import Images, Labels, Samples, Subset
from fedflat.bench.input.bounds import MOST
from fedflat.bench.input.errors import UserError, unknown

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
CLIENTS = "client_train"
NAMES = (*REQUIRED, CLIENTS)


def check_names(given: Mapping[str, object] | list[str], what: str) -> None:
    """A `UserError`, which begins with `what`, if an array is missing or has an unknown name."""
    for name in given:
        if name not in NAMES:
            raise unknown(f"array in {what}", name, NAMES)
    if missing := [name for name in REQUIRED if name not in given]:
        raise UserError(f"{what} has no {', '.join(missing)} (needed: {', '.join(REQUIRED)}; {CLIENTS} if you like)")


def samples(given: Mapping[str, Any], what: str) -> dict[Subset, Samples]:
    """Training and test samples of the arrays `NAMES`; a `UserError`, which begins with `what`, if one is wrong.

    Clients become the groups of the training samples, numbered in the order of their ids.
    """
    check_names(given, what)
    arrays = {name: _array(name, value, what) for name, value in given.items()}
    inputs = {subset: _inputs(f"x_{subset}", arrays, what) for subset in ("train", "test")}
    labels = {subset: _labels(f"y_{subset}", arrays, what) for subset in ("train", "test")}
    for subset, x in inputs.items():
        _check_lengths(f"x_{subset}", x, f"y_{subset}", labels[subset], what)
    train, test = inputs["train"], inputs["test"]
    for kind, one, other in (("shape", train.shape[1:], test.shape[1:]), ("dtype", train.dtype, test.dtype)):
        if one != other:
            raise UserError(f"{what}: a sample of x_test has the {kind} {other}, but one of x_train {one}")
    groups = None
    if CLIENTS in arrays:
        clients = arrays[CLIENTS]
        if clients.ndim != 1 or clients.dtype.kind not in "iuSU":
            found = f"{clients.dtype} of the shape {list(clients.shape)}"
            raise UserError(f"{what}: {CLIENTS} is {found} (allowed: [n], whole numbers or texts)")
        _check_lengths("x_train", train, CLIENTS, clients, what)
        groups = np.unique(clients, return_inverse=True)[1].astype(np.int64)
    return {"train": Samples(train, labels["train"], groups), "test": Samples(test, labels["test"])}


def _array(name: str, value: Any, what: str) -> NDArray[Any]:
    """The value as an array of numbers or texts."""
    try:
        array = unmasked(f"{what}: {name}", value)
    except (TypeError, ValueError, RuntimeError) as error:  # rows of different lengths; a tensor on a GPU
        raise UserError(f"{what}: {name} is no array ({' '.join(str(error).split())})") from None
    if array.dtype.hasobject:
        raise UserError(f"{what}: {name} is an array of Python objects (allowed: numbers)")
    return array


def unmasked(what: str, value: Any) -> NDArray[Any]:
    """The value as a plain array; a `UserError` if it has masked values, which NumPy would convert silently."""
    if np.ma.is_masked(value):
        raise UserError(f"{what} has masked values (allowed: numbers; for example array.filled(0))")
    return np.asarray(value)


def _inputs(name: str, arrays: Mapping[str, NDArray[Any]], what: str) -> Images:
    """uint8 as it is, floating-point numbers in float32, other whole numbers, which are token ids, in int32."""
    x = arrays[name]
    if x.ndim < 2 or 0 in x.shape:
        raise UserError(f"{what}: {name} has the shape {list(x.shape)} (allowed: [n, ...], at least one sample)")
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind in "iu":
        if x.min() < 0 or x.max() > MOST:
            wrong = x.min() if x.min() < 0 else x.max()
            raise UserError(f"{what}: {name} has the token id {wrong} (allowed: whole numbers from 0 to {MOST})")
        return x.astype(np.int32)
    if x.dtype.kind != "f":
        raise UserError(f"{what}: {name} has the dtype {x.dtype} (allowed: uint8, floating-point or whole numbers)")
    with np.errstate(over="ignore"):  # reported below
        single = np.asarray(x, np.float32)
    wrong = np.flatnonzero(~np.isfinite(single.reshape(len(x), -1)).all(1))
    if wrong.size:
        more = f", as {wrong.size - 1} other samples" if wrong.size > 1 else ""
        raise UserError(f"{what}: sample {wrong[0]} of {name} has NaN or infinite values in float32{more}")
    return single


def _labels(name: str, arrays: Mapping[str, NDArray[Any]], what: str) -> Labels:
    y = arrays[name]
    if y.ndim != 1:
        raise UserError(f"{what}: {name} has the shape {list(y.shape)} (allowed: [n], one label per sample)")
    if y.dtype.kind not in "iu":
        raise UserError(f"{what}: {name} has the dtype {y.dtype} (allowed: whole numbers 0, 1, 2, ..., such as int64)")
    if len(y) and (y.min() < 0 or y.max() > MOST):
        wrong = y.min() if y.min() < 0 else y.max()
        raise UserError(f"{what}: {name} has the label {wrong} (allowed: whole numbers 0, 1, 2, ...)")
    return y.astype(np.int64)


def _check_lengths(x: str, inputs: NDArray[Any], y: str, others: NDArray[Any], what: str) -> None:
    if len(inputs) != len(others):
        raise UserError(f"{what}: {x} has {len(inputs)} samples, but {y} has {len(others)}")


def number_of_classes(train: Labels, test: Labels, what: str, classes: int | None) -> int:
    """The number of classes; a `UserError`, which begins with `what`, if a label is not one of them.

    `classes`: the number that the user gives; None: the training labels must be 0, 1, ..., each at least once.
    """
    known = classes or int(train.max()) + 1
    for name, y in (("y_train", train), ("y_test", test)):
        if y.max() >= known:
            raise UserError(f"{what}: {name} has the label {y.max()} (allowed: 0 to {known - 1})")
    absent = np.setdiff1d(np.arange(min(known, len(train) + 1)), train)
    if classes is None and absent.size:
        raise UserError(
            f"{what}: y_train has the labels {train.min()} to {train.max()}, but not {absent[0]}; number the classes "
            f"from 0 without gaps, or give their number, such as classes: {known}"
        )
    if known < 2:
        raise UserError(f"{what}: y_train has one class (allowed: at least two)")
    return known
