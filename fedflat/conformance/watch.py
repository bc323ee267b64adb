"""Observes the hooks of a method while it is trained: what they return, and what they change."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import new_class
from typing import Any, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedflat.bench.methods.base import ClientRound, Component, ServerRound
from fedflat.bench.methods.method import Method
from fedflat.conformance.finding import EDITS, FINITE, RANDOM, SHAPES, Finding, Place
from fedflat.conformance.sources import Sources

_RETURNS_A_VECTOR = {
    "delta": "return a vector, for example self.rho * unit(gradient(w))",
    "gradient": "return a gradient, for example gradient(w + delta)",
    "direction": "return a vector, for example g + self.lam * (w - client.w_global)",
    "uploaded_model": "return a model, for example w",
    "broadcast_model": "return a model, for example w",
    "step": "return a model, for example server.w + server.server_lr * server.mean_update",
}
"""The hooks that return a vector of the model's length, and how to mend one that does not."""

_RETURNS_NAMED_TENSORS = ("broadcast", "start_client", "start_server")
_OTHERS = (
    "start", "finish", "aggregate", "after_step", "value", "step_taken", "client_weights", "upload_bits",
    "download_bits", "rate",
)  # fmt: skip
_HOOKS = (*_RETURNS_A_VECTOR, *_RETURNS_NAMED_TENSORS, *_OTHERS)
_FIELDS = {ClientRound: ("w_global",), ServerRound: ("w", "start", "updates", "sent", "weights", "steps")}
_ENTRIES = {ClientRound: ("received", "state"), ServerRound: ("uploads", "state")}
_REPLACEABLE = "state"
"""The entries of a round that hooks may replace."""


@dataclass
class _Guard:
    """The tensors that a running hook must not change, by their names in its code, with copies of their values."""

    tensors: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    kept: dict[str, tuple[Callable[[], object], object]] = field(default_factory=dict)
    """Names that must go on to mean the same tensor: how to look one up, and the tensor."""
    states: dict[str, tuple[Mapping[str, object], Mapping[str, object]]] = field(default_factory=dict)
    """The states, by `client.state` or `server.state`, and copies of these dictionaries."""

    @classmethod
    def of(cls, arguments: Mapping[str, object]) -> "_Guard":
        guard = cls()
        for name, value in arguments.items():
            if isinstance(value, Tensor):
                guard._add(name, value)
            elif isinstance(value, ClientRound | ServerRound):
                for key in _FIELDS[type(value)]:
                    guard._add(f"{name}.{key}", getattr(value, key), functools.partial(getattr, value, key))
                kind = "client.state" if isinstance(value, ClientRound) else "server.state"
                guard.states[kind] = (value.state, dict(value.state))
                for key in _ENTRIES[type(value)]:
                    guard._add_entries(f"{name}.{key}", getattr(value, key), fixed=key != _REPLACEABLE)
            elif isinstance(value, Mapping):
                guard._add_entries(name, value, fixed=True)
        return guard

    def _add_entries(self, name: str, entries: Mapping[str, object], *, fixed: bool) -> None:
        for key, value in entries.items():
            if isinstance(value, Tensor):
                self._add(f"{name}['{key}']", value, functools.partial(entries.get, key) if fixed else None)

    def _add(self, name: str, tensor: Tensor, lookup: Callable[[], object] | None = None) -> None:
        if all(tensor is not known for known, _ in self.tensors.values()):
            self.tensors[name] = (tensor, tensor.clone())
        if lookup is not None:
            self.kept[name] = (lookup, tensor)

    def edited(self) -> Iterable[tuple[str, Tensor]]:
        """The tensors with other values than before."""
        for name, (tensor, before) in self.tensors.items():
            if not torch.equal(tensor.nan_to_num(), before.nan_to_num()):
                yield name, tensor

    def stored(self) -> Iterable[tuple[str, str]]:
        """The entries of states that are other tensors than before, as `("client.state", name)`."""
        for kind, (state, before) in self.states.items():
            yield from ((kind, name) for name, value in state.items() if value is not before.get(name))

    def replaced(self) -> Iterable[str]:
        """The names that now mean another tensor."""
        return (name for name, (lookup, tensor) in self.kept.items() if lookup() is not tensor)


class Watch(TorchFunctionMode):
    """Observes the components of `watched`; within the context, also the lines that edit a tensor.

    `findings` are without repetitions. `cosines` holds the angles between g and q under `direction`, and between the
    clients' mean update and the server's step under `step`. `stored` are the entries of states that a hook has stored.
    """

    def __init__(self, sources: Sources) -> None:
        super().__init__()
        self.sources = sources
        self._found: dict[tuple[str, str], Finding] = {}
        self.cosines: dict[str, list[float]] = {"direction": [], "step": []}
        self.stored: set[tuple[str, str]] = set()
        self._guards: list[_Guard] = []
        self._edits: dict[int, Place | None] = {}
        self._reported: list[Tensor] = []
        self._not_finite: Place | None = None
        self._where = ""

    @property
    def findings(self) -> list[Finding]:
        """All findings so far."""
        return list(self._found.values())

    def report(self, key: str, finding: Finding) -> None:
        """Add a finding, unless there is one of this check with this key."""
        self._found.setdefault((finding.check, key), finding)

    def watched(self, method: Method, where: str = "") -> Method:
        """The method with components whose hooks are observed; `where`: the situation, for messages."""
        self._where = where
        self._not_finite = None
        return replace(method, **{slot: self._component(c) for slot, c in method.by_slot().items()})  # type: ignore[arg-type]

    def _component(self, component: Component) -> Component:
        cls = type(component)
        hooks = {name: self._hook(name, getattr(cls, name)) for name in _HOOKS if hasattr(cls, name)}
        made = new_class(cls.__name__, (cls,), exec_body=lambda names: names.update(hooks, __module__=cls.__module__))
        fields = {name: getattr(component, name) for name in cls.model_fields}
        return cast(type[Component], made).model_construct(**fields)

    def _hook(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)
        place = self.sources.of_result(original)

        @functools.wraps(original)
        def hook(component: Component, *args: Any, **options: Any) -> Any:
            arguments = dict(signature.bind(component, *args, **options).arguments)
            arguments.pop(next(iter(arguments)))  # self
            guard = _Guard.of(arguments)
            if not self._guards:
                self._edits.clear()
            self._guards.append(guard)
            try:
                result = original(component, *args, **options)
            finally:
                self._guards.pop()
            self.stored.update(guard.stored())
            self._check_changes(name, guard, place)
            self._check_result(name, result, arguments, place)
            return result

        return hook

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of torch, and notice which guarded tensors it edits, and the first result with NaN."""
        guarded = [tensor for guard in self._guards for tensor, _ in guard.tensors.values()]
        versions = [tensor._version for tensor in guarded]
        random = torch.random.get_rng_state() if self._guards else None
        result = func(*args, **(kwargs or {}))
        for tensor, version in zip(guarded, versions, strict=True):
            if tensor._version != version:
                self._edits.setdefault(id(tensor), self.sources.running())
        if self._guards and self._not_finite is None and isinstance(result, Tensor) and not _is_finite(result):
            self._not_finite = self.sources.running()
        if random is not None and not torch.equal(random, torch.random.get_rng_state()):
            self.report("torch", draws("torch's global generator", self.sources.running() or Place(self.sources.main)))
        return result

    def _check_changes(self, hook: str, guard: _Guard, place: Place) -> None:
        for name, tensor in guard.edited():
            if any(tensor is known for known in self._reported):
                continue  # an outer hook sees it, too
            self._reported.append(tensor)
            where = self._edits.get(id(tensor)) or place
            code = self.sources.text(where)
            self.report(
                f"{name} {where}",
                Finding(
                    EDITS, where, f"that {hook} leaves {name} as it is", f"its values have changed: `{code}`",
                    f"assign a new tensor: {_instead(name)}",
                ),
            )  # fmt: skip
        for name in guard.replaced():
            self.report(
                f"{hook} {name}",
                Finding(
                    EDITS, place, f"that {hook} does not replace {name}", "it is another tensor afterwards",
                    "only client.state, client.scratch, client.upload and server.state get new entries",
                ),
            )  # fmt: skip

    def _check_result(self, hook: str, result: object, arguments: Mapping[str, Any], place: Place) -> None:
        if hook in _RETURNS_A_VECTOR:
            like = _like(arguments)
            if self._is_vector(hook, result, like, place):
                assert isinstance(result, Tensor)
                self._check_values(hook, result, arguments, place)
        elif hook in _RETURNS_NAMED_TENSORS:
            kinds = {"broadcast": "", "start_client": "client.state", "start_server": "server.state"}
            self._check_named(hook, kinds[hook], result, place)
        elif hook == "value":
            if not isinstance(result, Tensor) or result.ndim:
                self._shape(hook, "a tensor of one number", _described(result), "return a mean over samples", place)
        elif hook == "client_weights":
            server = next(value for value in arguments.values() if isinstance(value, ServerRound))
            self._check_weights(result, server.weights, place)
        elif hook == "finish":
            client = next(value for value in arguments.values() if isinstance(value, ClientRound))
            self._check_named(hook, "client.state", client.state, place)
            self._check_named(hook, "client.upload", client.upload, place)
        if hook in ("aggregate", "step"):
            server = next(value for value in arguments.values() if isinstance(value, ServerRound))
            self._check_named(hook, "server.state", server.state, place)

    def _check_weights(self, result: object, given: Tensor, place: Place) -> None:
        mend = "return one weight per client, such as weights / weights.sum()"
        if not isinstance(result, Tensor) or result.shape != given.shape or result.dtype != given.dtype:
            self._shape("weights", f"{_described(given)} from client_weights", _described(result), mend, place)
        elif not _is_finite(result):
            self._infinite("the result of client_weights", place)
        elif abs(total := float(result.sum()) - 1) > 1e-4:
            self._shape("sum of weights", "weights whose sum is 1", f"a sum of {total + 1:.3g}", mend, place)

    def _is_vector(self, hook: str, result: object, like: Tensor, place: Place) -> bool:
        if isinstance(result, Tensor) and result.shape == like.shape and result.dtype == like.dtype:
            return True
        shown, mend = _described(result), _RETURNS_A_VECTOR[hook]
        if isinstance(result, Tensor) and result.shape == like.shape:
            mend = "create tensors with torch.zeros_like(w) or w.new_zeros(...), and convert others by .to(w)"
        self._shape(hook, f"{_described(like)} from {hook}", shown, mend, place)
        return False

    def _shape(self, key: str, expected: str, seen: str, mend: str, place: Place) -> None:
        self.report(key, Finding(SHAPES, place, expected, seen, mend))

    def _check_values(self, hook: str, result: Tensor, arguments: Mapping[str, Any], place: Place) -> None:
        if not _is_finite(result):
            self._infinite(f"the result of {hook}", place)
            return
        change = result
        if hook == "step":
            server = next(value for value in arguments.values() if isinstance(value, ServerRound))
            change = result - server.w
            self._add_cosine(hook, change, server.mean_update)
        elif hook == "direction":
            g = _like(arguments)
            change = result - g
            self._add_cosine(hook, result, g)
        elif hook != "delta":
            return
        if len(change) > 1 and bool((change != 0).all()) and _spread(change) <= 1e-6 * float(change.abs().max()):
            what = {"delta": "δ", "direction": "q − g", "step": "w^{t+1} − w^t"}[hook]
            self._shape(
                f"{hook} constant", f"a vector with different entries for {what}",
                f"{float(change[0]):.3g} in all entries, as if one number had been added to the vector",
                "use a vector where a single number, such as a mean or a norm, is now", place,
            )  # fmt: skip

    def _check_named(self, hook: str, kind: str, values: object, place: Place) -> None:
        """All values are tensors with finite numbers."""
        if not isinstance(values, Mapping):
            self._shape(hook, f"named tensors from {hook}", _described(values), "return a dictionary", place)
            return
        for name, value in values.items():
            if isinstance(value, Tensor) and _is_finite(value):
                continue
            where = self.sources.of_entry(kind, name) if kind else place
            shown = f"{kind}['{name}']" if kind else f"'{name}' of {hook}"
            if not isinstance(value, Tensor):
                mend = "use a tensor: w.new_full((), x) for a number x"
                self._shape(shown, f"a tensor as {shown}", _described(value), mend, where)
            else:
                self._infinite(shown, where)

    def _infinite(self, what: str, place: Place) -> None:
        where = self._not_finite or place
        self.report(
            str(where),
            Finding(
                FINITE, where, f"finite numbers{self._where}",
                f"NaN or infinity in {what}: `{self.sources.text(where)}`",
                "divide by a norm plus 1e-12, as unit(v) does, and avoid the logarithm or root of zero",
            ),
        )  # fmt: skip

    def _add_cosine(self, hook: str, one: Tensor, other: Tensor) -> None:
        if bool(one.any()) and bool(other.any()):
            self.cosines[hook].append(float(torch.cosine_similarity(one, other, dim=0)))


def draws(generator: str, place: Place) -> Finding:
    """The finding that a method draws from a generator which FedFlat does not seed."""
    return Finding(
        RANDOM, place, "random numbers from client.stream(...) only", f"draws from {generator}",
        'generator=client.stream("a name for this purpose"), which gives the same numbers in a repeated run',
    )  # fmt: skip


def _is_finite(value: Tensor) -> bool:
    return not value.is_floating_point() or bool(value.isfinite().all())


def _spread(v: Tensor) -> float:
    return float(v.max() - v.min())


def _like(arguments: Mapping[str, Any]) -> Tensor:
    """The vector whose shape and number format a hook's result must have."""
    for value in arguments.values():
        if isinstance(value, Tensor):
            return value
        if isinstance(value, ServerRound):
            return value.w
    raise TypeError(f"no vector among {list(arguments)}")


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return "None" if value is None else f"{value!r} of type {type(value).__name__}"[:80]


def _instead(name: str) -> str:
    return f"{name} = {name} + ..." if "state" in name else f"x = {name} + ..., not x = {name}.add_(...)"
