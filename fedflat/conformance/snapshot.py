"""What a method's module, classes and objects hold besides hyper-parameters, to notice what training changes there."""

import inspect
import random
from collections import deque
from collections.abc import Iterable, Mapping
from functools import cached_property, singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedflat.bench.input.content import short_hash
from fedflat.bench.methods.method import Method
from fedflat.conformance.sources import is_of_user, own_classes


def held(method: Method) -> dict[str, Any]:
    """A fingerprint of every variable of the method's modules, classes and objects, by its name in words.

    The name ends in the variable's own name. Cached properties are no variables: they follow from hyper-parameters.
    """
    found: dict[str, Any] = {}
    for cls in own_classes(method):
        values = filter(inspect.isfunction, vars(cls).values())
        functions = [value for value in values if value.__module__ == cls.__module__]
        if functions and is_of_user(cls):
            found |= {f"the module's variable {name}": _print(v) for name, v in functions[0].__globals__.items()}
        found |= {f"{cls.__name__}'s variable {name}": _print(v) for name, v in vars(cls).items()}
    for component in method:
        cls = type(component)
        own = {**vars(component), **(component.__pydantic_private__ or {})}
        lasting = {name: v for name, v in own.items() if not isinstance(getattr(cls, name, None), cached_property)}
        found |= {f"{cls.__name__}'s attribute {name}": _print(v) for name, v in lasting.items()}
    return {name: value for name, value in found.items() if not name.split()[-1].startswith("__")}


def random_states() -> dict[str, Any]:
    """The states of the generators that everybody shares."""
    return {
        "torch's global generator": torch.random.get_rng_state().tolist(),
        "NumPy's global generator": str(np.random.get_state()),  # noqa: NPY002 - a user may have used it
        "Python's generator": str(random.getstate()),
    }


@singledispatch
def _print(value: object) -> Any:
    """A value that is equal for equal contents; of functions, classes and other objects, the object's number."""
    own = type(value).__module__.startswith("fedflat_user_") and not isinstance(value, type)
    return [type(value).__name__, _print(vars(value))] if own and hasattr(value, "__dict__") else id(value)


@_print.register
def _of_tensor(value: Tensor) -> Any:
    return ("tensor", *_of_array(value.detach().cpu().contiguous().numpy()))


@_print.register
def _of_array(value: np.ndarray) -> Any:
    return (str(value.dtype), value.shape, short_hash(np.ascontiguousarray(value).tobytes()))


@_print.register(torch.Generator)
@_print.register(np.random.Generator)
def _of_generator(value: torch.Generator | np.random.Generator) -> Any:
    return str(value.bit_generator.state) if isinstance(value, np.random.Generator) else value.get_state().tolist()


@_print.register(int)
@_print.register(float)
@_print.register(str)
@_print.register(bytes)
@_print.register(type(None))
def _of_plain(value: object) -> Any:
    return repr(value)


@_print.register
def _of_mapping(value: Mapping) -> Any:  # type: ignore[type-arg]  # registration needs the plain class
    return [(_print(key), _print(item)) for key, item in value.items()]


@_print.register(list)
@_print.register(tuple)
@_print.register(deque)
def _of_sequence(value: Iterable[object]) -> Any:
    return [_print(item) for item in value]


@_print.register(set)
@_print.register(frozenset)
def _of_set(value: Iterable[object]) -> Any:
    return sorted(map(repr, value))
