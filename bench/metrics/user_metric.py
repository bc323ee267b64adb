"""Metrics of users: a class, or a plain function, that their file or their code defines."""

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, get_args

from pydantic import Field
from torch import Tensor

from fedflat.bench.code.user_function import NAME_OF_CODE, OWN_PREFIX, UserFunction, in_snake_case
from fedflat.bench.input.errors import UserError
from fedflat.bench.metrics import METRICS, add_of_user
from fedflat.bench.metrics.base import Floats, Metric, OfSamples
from fedflat.bench.metrics.of_clients import OfClients
from fedflat.bench.metrics.quantity import Better

NOUN = "metric"

_WORDS = ("title", "plural", "unit")


def metric(
    title: str, *, better: Better = "none", unit: str = ""
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Marks a function as a metric with this title, direction and unit. They become its attributes."""

    def marked(function: Callable[..., float]) -> Callable[..., float]:
        for name, value in (("title", title), ("better", better), ("unit", unit)):
            setattr(function, name, value)
        return function

    return marked


class UserMetric(UserFunction):
    """A metric that a class or function of a file or module defines."""

    in_words: ClassVar[str] = "a user-defined metric"
    noun: ClassVar[str] = NOUN

    function: str = Field(description="a class of metrics, or a function (scores, labels) or (accuracies)")

    @cached_property
    def kind(self) -> type[Metric]:
        """The metric; a `UserError` if the file cannot be executed, or defines no metric of this name."""
        return self.named(kind_of)

    @property
    def copied_as(self) -> str:
        """The name of a run's copy of the file, without its ending."""
        return f"{NOUN}_{self.function}"


def kind_of(given: Any) -> type[Metric]:
    """The metric that a class, or a function of scores and labels or of the clients' accuracies, defines.

    From now on it is known by its name. A `UserError` if it is neither, or its name, title, unit or direction is wrong.
    """
    kind = given if inspect.isclass(given) else _of_function(given)
    if not issubclass(kind, Metric) or inspect.isabstract(kind):
        lacks = ", ".join(sorted(getattr(kind, "__abstractmethods__", ()))) if issubclass(kind, Metric) else ""
        raise UserError(
            f"{given.__name__} is no metric{f', it lacks {lacks}' if lacks else ''} (allowed: a function of scores and "
            "labels, a function of the clients' accuracies, or a class below OfSamples, OfConfusion or OfClients)"
        )
    return _completed(kind)


def _completed(kind: type[Metric]) -> type[Metric]:
    """The class with a name and a title, after a check of all words."""
    if getattr(kind, "name", None) is None:
        kind.name = in_snake_case(kind.__name__)
    if getattr(kind, "title", None) is None:
        kind.title = kind.name.replace("_", " ")
    if not isinstance(kind.name, str) or not NAME_OF_CODE.fullmatch(kind.name):
        raise UserError(f"name = {kind.name!r} (allowed: lower-case letters, digits and '_', the first one a letter)")
    for word in _WORDS:
        if not isinstance(value := getattr(kind, word), str) or "\n" in value:
            raise UserError(f"{word} of the metric {kind.name} = {value!r} (allowed: a text of one line)")
    if kind.better not in get_args(Better):
        raise UserError(f"better of the metric {kind.name} = {kind.better!r} (allowed: {', '.join(get_args(Better))})")
    if (of_fedflat := METRICS.get(kind.name)) is kind:  # FedFlat's own class is a metric, too
        return kind
    if of_fedflat is not None:
        kind.name = OWN_PREFIX + kind.name
        if kind.title in (of_fedflat.title, of_fedflat.name.replace("_", " ")):
            kind.title = f"own {kind.title}"
    add_of_user(kind)
    return kind


def _of_function(function: Callable[..., Any]) -> type[Metric]:
    """A class whose `of` calls the function."""
    words = {word: getattr(function, word) for word in (*_WORDS, "better") if hasattr(function, word)}
    name = getattr(function, "__name__", "")
    values = {"__module__": getattr(function, "__module__", __name__), "name": name, **words}
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of C code
        parameters = ()  # type: ignore[assignment]  # as if it had none
    required = [one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    if len(required) == 2:

        def of_samples(self: OfSamples, scores: Tensor, y: Tensor) -> float:
            value: float = function(scores.detach().cpu(), y.cpu())
            return value

        return type(name, (OfSamples,), {**values, "of": of_samples})
    if len(required) == 1:

        def of_clients(self: OfClients, accuracies: Floats) -> float:
            value: float = function(accuracies)
            return value

        return type(name, (OfClients,), {**values, "of": of_clients})
    raise UserError(
        f"the function {name} has the arguments ({', '.join(required)}) (allowed: (scores, labels), or (accuracies) of "
        "the clients)"
    )
