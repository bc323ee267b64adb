"""The conformance suite: all checks of a method, in an order in which each can rely on those before it."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from fedflat.bench.code.user_code import OwnImportError, reason
from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.local import LocalResult, LocalWork
from fedflat.bench.engine.method_costs import example
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.frozen import explain
from fedflat.bench.methods.recipe import Recipe
from fedflat.conformance import checks
from fedflat.conformance.checks import NotCheckedError, Subject
from fedflat.conformance.effects import difference, effects
from fedflat.conformance.finding import (
    CHECKS,
    COHORT,
    COSTS,
    DIFFERENCE,
    EDITS,
    EFFECTS,
    EXCEPTIONS,
    FINITE,
    HIDDEN,
    HOOKS,
    IMPORTS,
    NEUTRAL,
    ORDER,
    RADIUS,
    RANDOM,
    RESUME,
    SHAPES,
    SIGNS,
    Finding,
    Place,
)
from fedflat.conformance.hooks import hooks
from fedflat.conformance.snapshot import held, random_states
from fedflat.conformance.sources import Sources
from fedflat.conformance.trial import TrialRun, in_a_loop
from fedflat.conformance.watch import Watch, draws
from fedflat.named_method import NamedMethod


@dataclass
class Report:
    """The findings about a method, and the checks that do not apply, with the reason."""

    title: str
    values: Mapping[str, Any]
    findings: list[Finding] = field(default_factory=list)
    not_checked: dict[str, str] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """One line for each check, then one for each finding."""
        values = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        yield f"{self.title}{f' with {values}' if values else ''}"
        for check in CHECKS:
            count = sum(finding.check == check for finding in self.findings)
            result = f"{count} finding{'s' * (count > 1)}" if count else "ok"
            if not count and check in self.not_checked:
                result = f"not checked: {self.not_checked[check]}"
            yield f"  {check:<27}{result}"
        yield from map(str, self.findings)


def check_method(name: str, given: Mapping[str, Any] | None = None) -> Report:
    """Check a method of the catalog by its name, the one in a Python file, or one of an experiment (EXPERIMENT:LABEL).

    `given` are values of hyper-parameters; the others are those of the experiment, or examples. A `UserError` if there
    is no such method, or its file cannot be executed, or a value is not allowed.
    """
    try:
        named = NamedMethod.of(name)
        found = named.recipe
    except OwnImportError as error:
        return _not_of_one_file(name, error)
    values = {**example(found), **named.values, **(given or {})}
    try:
        found.build(values)
    except UserError as error:
        raise UserError(f"{error}; values for the check are those of examples=[...], or of --set NAME=VALUE") from None
    with _generators_restored():
        return _Suite(found, values, named.again, named.file).report()


def _not_of_one_file(name: str, error: OwnImportError) -> Report:
    finding = Finding(
        IMPORTS, Place(error.file, error.line), "imports of installed packages and of FedFlat only",
        f"the import of '{error.imported}', whose edits would change runs without being noticed",
        "move its code into this file",
    )  # fmt: skip
    return Report(name, {}, [finding], dict.fromkeys(CHECKS, f"first mend {IMPORTS}"))


class _Suite:
    def __init__(self, found: Recipe, values: dict[str, Any], again: Callable[[], Recipe], file: Path | None) -> None:
        method = found.build(values)
        self.subject = Subject(found, values, method, again, Sources(method, file))
        self._report = Report(f"{found.title} ({found.name})", values)
        self._watch = Watch(self.subject.sources)

    def report(self) -> Report:
        """All checks."""
        report, drawn = self._report, random_states()
        self._apply(HOOKS, hooks)
        try:
            states, reference = self._observed()
        except (Exception, SystemExit) as error:
            report.findings += self._watch.findings
            failed = self._failure(error)
            if failed.place.line is not None or not report.findings:
                report.findings.append(failed)
            self._leave_out("the method cannot be trained", CHECKS)
            return report
        report.findings += [*self._watch.findings, *dict.fromkeys(checks.state_shapes(self.subject, states))]
        if self._may_go_on((SHAPES, FINITE), (SIGNS, RADIUS)):
            self._apply(SIGNS, checks.signs, self._watch)
            self._apply(RADIUS, checks.radius)
        self._apply(COSTS, checks.costs)
        if not self._found(RANDOM):
            now = random_states()
            report.findings += [draws(name, self._main) for name in now if now[name] != drawn[name]]
        if self._may_go_on(
            (SHAPES, EDITS, FINITE, HIDDEN, RANDOM), (NEUTRAL, HIDDEN, ORDER, RESUME, COHORT, EFFECTS, DIFFERENCE)
        ):
            self._apply(NEUTRAL, checks.neutral)
            self._apply(HIDDEN, checks.repeats, reference)
            if self._may_go_on((HIDDEN,), (ORDER, RESUME, COHORT, EFFECTS, DIFFERENCE)):
                self._apply(ORDER, checks.order, reference)
                self._apply(RESUME, checks.resume, reference)
                self._apply(COHORT, checks.cohort, reference)
                if self._may_go_on((HOOKS,), (EFFECTS, DIFFERENCE)):
                    self._apply(EFFECTS, effects, self._watch, reference)
                    if self._may_go_on((EFFECTS,), (DIFFERENCE,)):
                        self._apply(DIFFERENCE, difference, reference)
        return report

    def _found(self, *names: str) -> list[str]:
        """Those of the checks that have findings."""
        known = {finding.check for finding in self._report.findings}
        return [name for name in names if name in known]

    def _may_go_on(self, first: Sequence[str], later: Sequence[str]) -> bool:
        """Whether the checks `first` have no findings, which would also be found by the `later` ones."""
        found = self._found(*first)
        if found:
            self._leave_out(f"first mend {' and '.join(found)}", later)
        return not found

    @property
    def _main(self) -> Place:
        return Place(self.subject.sources.main)

    def _observed(self) -> tuple[list[FederationState], list[FederationState]]:
        """The states of the observed rounds, and of the same rounds when they are not observed.

        A round in float32 and two without gradients are observed, too, each with a module of its own: tensors that a
        faulty method keeps in variables would not fit there, and hide the fault.
        """

        def train(federation: Federation, works: Sequence[LocalWork]) -> list[LocalResult]:
            results = in_a_loop(federation, works)
            for finding in checks.uploads_fit(self.subject, results):
                self._watch.report(str(finding), finding)
            return results

        watch, subject = self._watch, self.subject
        before = held(subject.method)
        with watch:
            states = TrialRun(watch.watched(subject.method)).states(train=train)
        reference = TrialRun(subject.method).states()
        for finding in self._changed(before, held(subject.method)):
            watch.report(finding.seen, finding)
        with watch:
            TrialRun(watch.watched(subject.rebuilt()), torch.float32).states(1, train)
            TrialRun(watch.watched(subject.rebuilt(), " where the gradient is zero"), flat=True).states(2, train)
        return states, reference

    def _apply(self, name: str, check: Callable[..., Iterator[Finding]], *given: object) -> None:
        try:
            self._report.findings += check(self.subject, *given)
        except NotCheckedError as reason:
            self._report.not_checked[name] = str(reason)
        except (Exception, SystemExit) as error:
            self._report.findings.append(self._failure(error, f" in the check of {name}"))
            self._report.not_checked[name] = "the method fails"

    def _leave_out(self, why: str, names: Sequence[str]) -> None:
        for name in names:
            self._report.not_checked.setdefault(name, why)

    def _changed(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Finding]:
        for name in sorted(after):
            if before.get(name) != after[name]:
                place = self.subject.sources.of_variable(name.split()[-1])
                yield Finding(
                    HIDDEN, place, "that training changes no variable of the file", f"{name} changes", checks.STORE
                )

    def _failure(self, error: BaseException, where: str = "") -> Finding:
        place, text = self.subject.sources.of_error(error), reason(error)
        code = self.subject.sources.text(place)
        what = "correct this line" if code else "correct what the hooks return or change"
        mend = f"{what}; docs/experiments/methods.md lists what each hook gets"
        if isinstance(error, ValidationError):
            text = explain(error)[0]
        if "frozen" in text or "object has no field" in text:
            mend = f"{checks.STORE}; components hold hyper-parameters only"
        return Finding(EXCEPTIONS, place, f"no exception{where}", f"{text}{f': `{code}`' if code else ''}", mend)


@contextmanager
def _generators_restored() -> Iterator[None]:
    """Restores the global generators at the end, from which a faulty method may draw."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def require(reports: Sequence[Report]) -> None:
    """A `UserError` if there are findings."""
    counts = {report.title: len(report.findings) for report in reports if report.findings}
    if counts:
        raise UserError("; ".join(f"{title}: {count} finding{'s' * (count > 1)}" for title, count in counts.items()))
