"""Computes rounds of a finished run again, from a stored state, and compares them with what the run has stored."""

import csv
import functools
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import nan
from typing import Any

import torch
from torch import Tensor

from fedflat.analysis.provenance.differences import Differences
from fedflat.bench.engine.federation import FederationState
from fedflat.bench.engine.local import LocalResult
from fedflat.bench.experiments.results import METRICS
from fedflat.bench.files.csv_json import read_checked_text
from fedflat.bench.host.machine import processor
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.engine import Engine
from fedflat.bench.training.engine_choice import EngineChoice
from fedflat.bench.training.provenance import device_name, libraries
from fedflat.bench.training.run_directory import FINAL, RunDirectory, local_models_file, snapshot_file
from fedflat.bench.training.run_setup import RunSetup

NOT_COMPUTED = "stopped"
"""The column of the metrics that follows from the others."""


@dataclass(frozen=True, eq=False)
class Replay:
    """A finished run, set up to be computed again on the device of its set-up, with the engine's choice of the run."""

    run: RunDirectory
    setup: RunSetup

    @functools.cached_property
    def metrics(self) -> list[dict[str, float]]:
        """The stored metrics of each round, to the last bit."""
        file, is_recorded = self.run.path / METRICS, self.run.has_recorded(METRICS)
        rows = csv.DictReader(io.StringIO(read_checked_text(file, self.run.remedy, is_recorded=is_recorded)))
        return [
            {name: float(value) if value else nan for name, value in row.items() if name != NOT_COMPUTED}
            for row in rows
        ]

    @functools.cached_property
    def recorded(self) -> tuple[EngineChoice | None, EngineChoice | None]:
        """How the engine computed the first and the last round; None if the run is of a version with other choices."""
        about = self.run.provenance
        first, last = about.get("engine_at_start", about.get("engine")), about.get("engine")
        return _choice_of(first), _choice_of(last)

    def reasons(self) -> list[str]:
        """Why the bits need not be the stored ones, in words; empty if they must be."""
        about, device = self.run.provenance, self.setup.objective.device
        there, here = about.get("libraries", {}), libraries()
        found = [f"{name} {there.get(name)} instead of {here[name]}" for name in here if there.get(name) != here[name]]
        if not self.run.of_this_code:
            found.append("other code")
        if about.get("device") != device_name(device):
            found.append(f"{about.get('device')} instead of {device_name(device)}")
        elif device.type == "cpu" and about.get("processor") != processor():
            found.append(f"{about.get('processor', 'perhaps another processor')} instead of {processor()}")
        if len(about.get("computed_on", [])) > 1:
            found.append("several machines")
        start, end = self.recorded
        if (
            start is None
            or end is None
            or replace(start, together=end.together) != end
            or not end.is_possible_on(device)
        ):
            found.append("another choice of the engine")
        if end is not None and end.together and (device.type == "cuda" or self.setup.engine.seeds == "together"):
            found.append("seeds that were trained together")
        return found

    def rounds(self, count: int, first: int | None = None) -> range:
        """The rounds to compute again: `count` rounds, or all if there are fewer, after the latest possible state.

        With `first`, `count` rounds from that one, or up to the last, and before them those since the latest state. A
        `UserError` if the run has no such round.
        """
        done = len(self.metrics)
        states = [r for r in self.run.config.snapshots if snapshot_file(self.run.path, r).is_file()]
        if first is not None and first > done:
            raise UserError(f"the run has no round {first} (allowed: 1 to {done})")
        latest = max(0, done - count) if first is None else first - 1
        start = max((r for r in states if r <= latest), default=0)
        return range(start + 1, min((start if first is None else latest) + count, done) + 1)

    def evaluate(self, differences: Differences) -> None:
        """Evaluate the final model, and compare the result with the metrics of the last round."""
        device, last = self.setup.objective.device, self.metrics[-1]
        self._choice(len(self.metrics)).prepare([self.setup.objective])
        final = self.run.final(device)
        self.setup.federation.evaluate_with(final)
        again = self.setup.evaluate_model(final.w)
        stored = {name: last.get(name, nan) for name in again}
        differences.numbers(self.run.path / METRICS, f"round {len(self.metrics)}", stored, again)

    def compute(self, rounds: range, differences: Differences) -> None:
        """Compute these rounds, and compare metrics, states, local models and the final model as far as stored."""
        setup, run, device = self.setup, self.run, self.setup.objective.device
        start = rounds.start - 1
        state = run.snapshot(start, device) if start else setup.federation.start(setup.objective.initial())
        engine = Engine([setup.objective], self._choice(start), "auto", lambda news: None)
        for number in rounds:
            work = setup.work(state)
            results = engine.train(setup.federation.local, work)
            state, measurements = setup.federation.aggregate(state, work, results)
            row: dict[str, float] = {"round": number, **measurements.numbers()}
            if number in run.config.evaluated_rounds and not row["diverged"]:
                row |= setup.evaluate(state)
            differences.numbers(run.path / METRICS, f"round {number}", self.metrics[number - 1], row)
            of_clients = {one.client: result for one, result in zip(work, results, strict=True)}
            self._compare(state, of_clients, differences)

    def _choice(self, finished_rounds: int) -> EngineChoice:
        """The choice after this many rounds; the loop if it is not known, a simpler one if it is not possible here."""
        choice = self.recorded[1 if finished_rounds else 0] or EngineChoice()
        return choice if choice.is_possible_on(self.setup.objective.device) else choice.simpler() or choice

    def _compare(self, state: FederationState, results: Mapping[int, LocalResult], differences: Differences) -> None:
        """Compare what the run has stored after a round with the state and the clients' results of this round."""
        run, cpu, evaluated = self.run, torch.device("cpu"), self.setup.federation.evaluated(state)
        if (file := snapshot_file(run.path, state.round)).is_file():
            differences.state(file, run.snapshot(state.round, cpu), state)
        if (file := local_models_file(run.path, state.round)).is_file():
            stored, when = run.local_models(state.round, cpu), f"after round {state.round}"
            computed = {f"client {client}'s model {when}": result.w for client, result in results.items()}
            models = {f"client {client}'s model {when}": w for client, w in stored.items()}
            name = f"the global model {when}"
            differences.tensors(file, {**models, name: stored.w_global}, {**computed, name: evaluated})
        if state.round == len(self.metrics) and (file := run.path / FINAL).is_file():
            differences.tensors(file, _of_final(run.final(cpu)), _of_final(self.setup.federation.final(state)))


def _of_final(final: FederationState) -> dict[str, Tensor]:
    return {"the final model": final.w, **{f"{name} of the final model": v for name, v in final.server.items()}}


def _choice_of(values: Any) -> EngineChoice | None:
    try:
        return EngineChoice.from_json(values)
    except ValueError:
        return None
