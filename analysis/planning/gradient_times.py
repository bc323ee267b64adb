"""How long one gradient takes: measured here and now on random images, or as a file has it from a measurement."""

import csv
import datetime
import functools
import io
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

import torch
from pydantic import TypeAdapter

from bench.engine.objective import Objective
from bench.files.atomic import write_text
from bench.host.machine import machine
from bench.input.errors import UserError
from bench.models import AnyModel, build_model

REPEATS = 2
SECONDS = 1.0
"""A gradient is timed so often at least, and for so long."""

COLUMNS = ("model", "channels", "height", "width", "classes", "batch", "milliseconds", "machine", "day")


class Gradient(NamedTuple):
    """One gradient of a mini-batch: all that its time depends on. `model` is its choice as JSON."""

    model: str
    shape: tuple[int, int, int]
    classes: int
    batch: int

    @property
    def parameters(self) -> int:
        """How many the model has."""
        return objective(self.model, self.shape, self.classes, "cpu").layout.total


Times = Callable[[Gradient], float]
"""Seconds that a gradient takes."""


@functools.cache
def objective(model: str, shape: tuple[int, int, int], classes: int, device: str) -> Objective:
    """The loss of a model, whose choice is given as JSON."""
    module = build_model(TypeAdapter(AnyModel).validate_json(model), shape, classes, 0)
    return Objective(module.to(device), channels_last=device == "cpu")


@dataclass(frozen=True)
class GradientTimes:
    """Times of gradients in milliseconds, and where and when they were measured.

    What is not known yet is measured on the device; without one, a `UserError` says how to measure it.
    """

    machine: str
    day: str
    device: torch.device | None = None
    known: dict[Gradient, float] = field(default_factory=dict)

    @classmethod
    def measured(cls, device: torch.device) -> Self:
        """Those of this machine, each timed when it is first asked for."""
        return cls(machine(device), datetime.datetime.now(tz=datetime.UTC).date().isoformat(), device)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Those that a file has."""
        try:
            rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
            known = {
                Gradient(
                    row["model"],
                    (int(row["channels"]), int(row["height"]), int(row["width"])),
                    int(row["classes"]),
                    int(row["batch"]),
                ): float(row["milliseconds"])
                for row in rows
            }
            if wrong := [number for number in known.values() if not (math.isfinite(number) and number > 0)]:
                raise UserError(f"'{file}': milliseconds {wrong[0]:g} (allowed: finite numbers above 0)")
            return cls(rows[0]["machine"], rows[0]["day"], known=known)
        except OSError as error:
            raise UserError(f"cannot read '{file}': {error.strerror}") from None
        except (IndexError, KeyError, TypeError, ValueError):
            raise UserError(f"'{file}' is no table of {', '.join(COLUMNS)}") from None

    def write(self, file: Path) -> None:
        """Write all that is known, sorted."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for gradient, milliseconds in sorted(self.known.items()):
            model, shape, classes, batch = gradient
            writer.writerow([model, *shape, classes, batch, f"{milliseconds:g}", self.machine, self.day])
        write_text(file, text.getvalue())

    def __call__(self, gradient: Gradient) -> float:
        """The seconds that a gradient takes."""
        if gradient not in self.known:
            if self.device is None:
                raise UserError(f"no time is known of {gradient}: measure it with fedflat index --measure")
            self.known[gradient] = float(f"{1000 * _measure(gradient, self.device):.4g}")  # as it is written
        return self.known[gradient] / 1000


def _measure(gradient: Gradient, device: torch.device) -> float:
    """Seconds of one gradient, with one thread, after one to warm up.

    The shortest of several: what else the machine does makes them longer only; of two threads, up to ten times.
    """
    model, shape, classes, batch = gradient
    loss = objective(model, shape, classes, str(device))
    stream = torch.Generator().manual_seed(0)
    x = torch.rand(batch, *shape, generator=stream).to(device)
    y = torch.randint(classes, (batch,), generator=stream).to(device)
    w = loss.initial()
    times: list[float] = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        while len(times) <= REPEATS or sum(times) < SECONDS:
            began = time.perf_counter()
            float(loss.gradient(w, x, y)[1])  # waits for the device
            times.append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    return min(times[1:])
