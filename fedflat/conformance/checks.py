"""The checks of a method that can be trained: each returns its findings, none if all is well."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from fedflat.bench.engine.backends.cohort import Cohort
from fedflat.bench.engine.checkpoint import load_state, save_state
from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.local import LocalResult, LocalWork
from fedflat.bench.engine.method_costs import example_values, measured_costs
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import explain
from fedflat.bench.methods.base import CannotBatchError, Component
from fedflat.bench.methods.compose import SLOTS
from fedflat.bench.methods.marks import Neutral, Radius, has_mark
from fedflat.bench.methods.method import Method
from fedflat.bench.methods.perturbations.none import NoPerturbation
from fedflat.bench.methods.recipe import Components, Recipe
from fedflat.conformance.finding import (
    COHORT,
    COSTS,
    HIDDEN,
    NEUTRAL,
    ORDER,
    RADIUS,
    RESUME,
    SHAPES,
    SIGNS,
    Finding,
    Place,
)
from fedflat.conformance.sources import Sources
from fedflat.conformance.trial import ROUNDS, TrialRun, in_a_loop
from fedflat.conformance.watch import Watch

STORE = "keep what lasts in client.state or server.state, and what lasts for one round in client.scratch"
_ONE_BY_ONE = "do not use client.id, which is None there, or the type of client.round"
_FILLED_UP = (
    "weigh samples by `weights`, which are zero for those that only fill up a mini-batch, or set separable = False in "
    "the class of the loss"
)


@dataclass(frozen=True)
class Subject:
    """The method that is checked: `again` reads its recipe as a new process would."""

    recipe: Recipe
    values: dict[str, Any]
    method: Method
    again: Callable[[], Recipe]
    sources: Sources

    def rebuilt(self) -> Method:
        """The method as in a new process, whose variables have their first values."""
        return self.again().build(self.values)

    def place(self, slot: str, hook: str) -> Place:
        """Where a hook of a component returns its result."""
        return self.sources.of_result(getattr(type(self.method.by_slot()[slot]), hook))

    @cached_property
    def perturbations(self) -> list[tuple[float, float]]:
        """‖δ‖, and the cosine of the angle between δ and ∇F_i(w), of all steps with a δ that is not zero."""
        if isinstance(self.method.perturbation, NoPerturbation):
            return []
        federation, found = TrialRun(self.method).federation(), []
        batches: dict[int, Sequence[Tensor]] = {}

        def probe(client: int, step: int, w: Tensor, delta: Tensor) -> None:
            if bool(delta.any()):
                g, _ = federation.objective.gradient(w, *federation.local.data.batch(batches[client][step]))
                found.append((float(delta.norm()), float(torch.cosine_similarity(delta, g, dim=0))))

        def train(federation: Federation, works: Sequence[LocalWork]) -> list[LocalResult]:
            batches.update({work.client: work.batches for work in works})
            return in_a_loop(federation, works, probe)

        state = federation.start(federation.objective.initial())
        for active in ROUNDS:
            state = TrialRun.next_state(federation, state, active, train)
        return found


class NotCheckedError(Exception):
    """A check does not apply; the message says why."""


# --- from the observed rounds


def state_shapes(subject: Subject, states: Sequence[FederationState]) -> Iterator[Finding]:
    """Vectors of a client's or the server's state that have another shape or number format later."""
    first, last = states[0], states[-1]
    pairs = [("server.state", first.server, last.server)]
    pairs += [("client.state", subject.method.start_client(first.w), state) for state in last.clients.values()]
    for kind, before, after in pairs:
        for name, old in before.items():
            new = after.get(name, old)
            if old.shape == first.w.shape and (new.shape, new.dtype) != (old.shape, old.dtype):
                yield Finding(
                    SHAPES, subject.sources.of_entry(kind, name),
                    f"a tensor {list(old.shape)} of {_name(old.dtype)} in {kind}['{name}']",
                    f"a tensor {list(new.shape)} of {_name(new.dtype)}",
                    f"store a vector, as it was at the start, or start with this shape: override start_{kind[:6]}",
                )  # fmt: skip


def uploads_fit(subject: Subject, results: Sequence[LocalResult]) -> Iterator[Finding]:
    """Uploads that not all clients send, or with different shapes."""
    shapes = [{name: list(v.shape) for name, v in result.upload.items()} for result in results]
    for other in shapes[1:]:
        for name in shapes[0] | other:
            one, another = (sent.get(name, "nothing") for sent in (shapes[0], other))
            if one != another:
                yield Finding(
                    SHAPES, subject.sources.of_entry("client.upload", name),
                    f"the same upload '{name}' from all clients of a round",
                    f"{one} from one client, {another} from another",
                    "send a tensor of the same shape from every client, zeros if there is nothing to send",
                )  # fmt: skip


def signs(subject: Subject, watch: Watch) -> Iterator[Finding]:
    """δ that descends, q that ascends, and a server that steps back."""
    perturbation, found = subject.method.perturbation, [cosine for _, cosine in subject.perturbations]
    if found and perturbation.ascends and fmean(found) < 0:
        yield Finding(
            SIGNS, subject.place("perturbation", "delta"), "⟨δ, ∇F_i(w)⟩ > 0 on average, so that δ increases the loss",
            f"a mean cosine of {fmean(found):.2f} over {len(found)} steps",
            "reverse the sign of δ; if δ is not meant to ascend, set ascends: ClassVar[bool] = False in the class",
        )  # fmt: skip
    if (cosines := watch.cosines["direction"]) and fmean(cosines) < 0:
        yield Finding(
            SIGNS, subject.place("correction", "direction"), "⟨q, g⟩ > 0 on average, because the local step is w − η q",
            f"a mean cosine of {fmean(cosines):.2f} over {len(cosines)} steps", "reverse the sign of q",
        )  # fmt: skip
    if (cosines := watch.cosines["step"]) and fmean(cosines) < 0:
        yield Finding(
            SIGNS, subject.place("server", "step"), "a server's step along the clients' mean update",
            f"a mean cosine of {fmean(cosines):.2f} over {len(cosines)} rounds",
            "add server.mean_update: it is w_i⁺ − w, not a gradient",
        )  # fmt: skip
    if not found and perturbation.ascends and not isinstance(perturbation, NoPerturbation):
        raise NotCheckedError("δ is zero in all steps; choose other values with --set NAME=VALUE")


def radius(subject: Subject) -> Iterator[Finding]:
    """‖δ‖ that is not the declared radius."""
    perturbation = subject.method.perturbation
    marked = [name for name, info in type(perturbation).model_fields.items() if has_mark(info, Radius)]
    lengths = [length for length, _ in subject.perturbations]
    if not lengths:
        raise NotCheckedError("δ is zero in all steps")
    if not marked:
        raise NotCheckedError(
            "no hyper-parameter of the perturbation is marked Radius(); "
            f"‖δ‖ is {min(lengths):.3g} to {max(lengths):.3g}"
        )
    for name in marked:
        declared = getattr(perturbation, name)
        wrong = [length for length in lengths if abs(length - declared) > 1e-6 * declared]
        if wrong:
            yield Finding(
                RADIUS, subject.place("perturbation", "delta"),
                f"‖δ‖ = {name} = {declared:g}, because {name} is marked Radius()",
                f"{min(wrong):.3g} to {max(wrong):.3g} in {len(wrong)} of {len(lengths)} steps",
                f"return self.{name} * unit(v), or remove the mark",
            )  # fmt: skip


# --- from comparisons


def repeats(subject: Subject, reference: Sequence[FederationState]) -> Iterator[Finding]:
    """Rounds that differ when the same objects compute them again."""
    if part := _differing(reference[-1], TrialRun(subject.method).states()[-1]):
        yield Finding(
            HIDDEN, subject.sources.of_variable(""), "the same bits when the rounds are computed again",
            f"{part} differs", STORE,
        )  # fmt: skip


def order(subject: Subject, reference: Sequence[FederationState]) -> Iterator[Finding]:
    """Results that depend on the order of a round's clients."""
    federation, state = TrialRun(subject.method).federation(), reference[1]
    works = federation.work(state, ROUNDS[1])
    results, reverse = in_a_loop(federation, works), in_a_loop(federation, works[::-1])[::-1]
    place = subject.sources.of_variable("")
    for work, one, another in zip(works, results, reverse, strict=True):
        if not one.has_bits_of(another):
            yield Finding(
                ORDER, place, "that a client's result does not depend on the clients before it",
                f"client {work.client} has another result if the clients are trained in reverse order", STORE,
            )  # fmt: skip
            return
    one_state, another_state = (
        federation.aggregate(state, list(w), list(r))[0] for w, r in ((works, results), (works[::-1], results[::-1]))
    )
    if part := far(one_state, another_state):
        hooks = [subject.sources.of_result(getattr(c, hook)) for c in subject.method for hook in _server_hooks(c)]
        yield Finding(
            ORDER, (hooks or [place])[0], "that the server's result does not depend on the order of the clients' rows",
            f"{part} differs by more than rounding if the rows are reversed",
            "combine all rows alike: server.mean(rows), rows.mean(0), rows.sum(0)",
        )  # fmt: skip


def resume(subject: Subject, reference: Sequence[FederationState]) -> Iterator[Finding]:
    """Bits that differ if training is killed after the first round, and resumed in a new process."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "state.safetensors"
        save_state(file, reference[1], {})
        loaded, _ = load_state(file, torch.device("cpu"))
        resumed = TrialRun(subject.rebuilt()).resumed(loaded)
    if part := _differing(reference[-1], resumed):
        yield Finding(
            RESUME, subject.sources.of_variable(""), "the same bits after a kill and a resumption",
            f"{part} differs", f"{STORE}: a new process has nothing else",
        )  # fmt: skip


def cohort(subject: Subject, reference: Sequence[FederationState]) -> Iterator[Finding]:
    """Clients whose results in a batched call differ from those of the loop by more than rounding."""
    federation, place = TrialRun(subject.method).federation(), subject.sources.of_variable("")
    own_loss = type(subject.method.loss) not in SLOTS["loss"].values()
    for state, active in zip(reference[:2], ROUNDS, strict=False):
        works = federation.work(state, active)
        alone = in_a_loop(federation, works)
        try:
            together = Cohort().train(federation.local, works)
        except CannotBatchError as error:
            reason = str(error).partition(". ")[0]
            raise NotCheckedError(f"clients can only be trained one after another, which is slower: {reason}") from None
        for work, one, another in zip(works, alone, together, strict=True):
            if part := _far_results(one, another):
                yield Finding(
                    COHORT, place, "the same numbers, up to rounding, from clients that are trained together",
                    f"{part} of client {work.client} in round {state.round + 1} differs",
                    _FILLED_UP if own_loss else _ONE_BY_ONE,
                )  # fmt: skip
                return
            if one.gradient_samples != another.gradient_samples:
                yield Finding(
                    COSTS, place, f"as many gradients as in the loop, {one.gradient_samples} of single samples",
                    f"{another.gradient_samples} when clients are trained together",
                    "compute the same number of gradients for every client and step",
                )  # fmt: skip
                return


def neutral(subject: Subject) -> Iterator[Finding]:
    """Neutral values at which the component differs from the one that it should be equal to."""
    marked = [
        (slot, component, name, mark)
        for slot, component in subject.method.by_slot().items()
        for name, info in type(component).model_fields.items()
        for mark in info.metadata
        if isinstance(mark, Neutral)
    ]
    if not marked:
        raise NotCheckedError("no hyper-parameter is marked Neutral(...)")
    for slot, component, name, mark in marked:
        place = subject.sources.of_variable(name)
        try:
            still = _changed(component, {**mark.given, name: mark.value})
        except (ValidationError, UserError) as error:
            reason = explain(error)[0] if isinstance(error, ValidationError) else str(error)
            mend = "allow the value, or change the mark"
            yield Finding(NEUTRAL, place, f"that {name} = {mark.value} is allowed", reason, mend)
            continue
        base = _base(slot, still, mark)
        runs = [TrialRun(replace(subject.method, **{slot: part})).states() for part in (still, base)]  # type: ignore[arg-type]
        distance = max(float((a.w - b.w).abs().max()) for a, b in zip(*runs, strict=True))
        if not distance <= 1e-8 * float(runs[1][-1].w.abs().max()):
            given = "".join(f", {key} = {value}" for key, value in mark.given.items())
            yield Finding(
                NEUTRAL, place, f"the same models as with the {slot} '{base.name}' at {name} = {mark.value}{given}",
                f"models that differ by up to {distance:.2g}",
                'let this value switch the change off, or name another component: Neutral(0, base="sam")',
            )  # fmt: skip


def costs(subject: Subject) -> Iterator[Finding]:
    """Counted costs that are not what the author declares."""
    declared = subject.recipe.costs
    counted = measured_costs(subject.again(), subject.values)  # a model of another size
    names = [field.name for field in dataclasses.fields(type(declared))] if declared is not None else []
    expected = {name: getattr(declared, name) for name in names if getattr(declared, name) is not None}
    if not expected:
        kinds = ("gradients", "download", "upload", "client_state", "server_state")
        shown = ", ".join(f"{name}={counted[name]:.3g}" for name in kinds)
        raise NotCheckedError(f"the recipe declares no costs=Costs(...); counted: {shown}")
    for name, value in expected.items():
        if abs(counted[name] - value) > 0.05:
            yield Finding(
                COSTS, subject.sources.of_variable("METHOD"), f"{name} = {value:g}, as costs=Costs(...) declares",
                f"{counted[name]:.3g}", "change the declaration, or what the hooks compute, send and store",
            )  # fmt: skip


def _changed(component: Component, values: dict[str, Any]) -> Component:
    return type(component)(**{**component.model_dump(), **values})


def _base(slot: str, component: Component, mark: Neutral) -> Component:
    """The component that `component` equals; it has the hyper-parameters of the same names."""
    base = Components().by_slot()[slot] if mark.base is None else SLOTS[slot].get(mark.base)
    if base is None:
        raise UserError(f"Neutral(..., base='{mark.base}') (allowed: {', '.join(SLOTS[slot])})")
    known = {name: value for name, value in component.model_dump().items() if name in base.model_fields}
    return base(**{**example_values(base.model_fields), **known})


def _server_hooks(component: Component) -> list[str]:
    """The hooks on the server that the component's class defines itself, the step first."""
    own = [name for name in ("step", "aggregate") if name in vars(type(component))]
    return own if not type(component).__module__.startswith("fedflat.bench.methods.servers.average") else []


def _vectors(state: FederationState) -> dict[str, Tensor]:
    clients = {f"{name} of client {i}": v for i, vs in state.clients.items() for name, v in vs.items()}
    return {"the model": state.w, **{f"server.state['{name}']": v for name, v in state.server.items()}, **clients}


def _differing(one: FederationState, another: FederationState) -> str:
    """The first part of two states with other bits; empty if there is none."""
    a, b = _vectors(one), _vectors(another)
    return next((name for name in a if name not in b or not torch.equal(a[name], b[name])), "")


def far(one: FederationState, another: FederationState) -> str:
    """The first part of two states that differs by more than rounding."""
    a, b = _vectors(one), _vectors(another)
    return next((name for name in a if not _close(a[name], b[name])), "")


def _far_results(one: LocalResult, another: LocalResult) -> str:
    """The first part of two results that differs by more than rounding."""
    a, b = (
        {"the model": result.w, "the model that is sent": result.model, "the loss": result.loss}
        | {f"client.upload['{name}']": v for name, v in result.upload.items()}
        | {f"client.state['{name}']": v for name, v in result.state.items()}
        for result in (one, another)
    )
    if a.keys() != b.keys():
        return f"the entry {min(a.keys() ^ b.keys())}"
    return next((name for name in a if not _close(a[name], b[name])), "")


def _close(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal up to rounding in float64."""
    if a.shape != b.shape:
        return False
    return not a.numel() or bool((a - b).abs().max() <= 1e-8 * (1e-3 + a.abs().max()))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
