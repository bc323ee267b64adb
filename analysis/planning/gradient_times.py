"""The time of one gradient: measured on random images, or read from a file of earlier measurements."""

import csv
import datetime
import functools
import io
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

import torch
from pydantic import TypeAdapter
from torch import Tensor

from fedflat.bench.engine.objective import Objective
from fedflat.bench.files.atomic import write_text
from fedflat.bench.host.machine import machine
from fedflat.bench.input.errors import UserError
from fedflat.bench.models import AnyModel, build_model
from fedflat.bench.models.base import ModelChoice

REPEATS = 2
SECONDS = 1.0
"""A gradient is measured at least this many times, and for at least this many seconds in total."""
FEW, LONG = 2, 1.0
"""If the gradient of so few samples takes longer than this many seconds, that of a mini-batch is computed from it."""
MOST = 256
"""The time of a larger mini-batch is computed from that of one with this size: it may not fit into memory."""

SHAPE = ("channels", "height", "width")
"""Columns with the shape of an input; the last ones are empty if it has fewer dimensions."""
COLUMNS = ("model", *SHAPE, "classes", "batch", "milliseconds", "machine", "day")


class Gradient(NamedTuple):
    """The gradient of a mini-batch, described by everything on which its time depends. `model`: its choice as JSON."""

    model: str
    shape: tuple[int, ...]
    classes: int
    batch: int

    @property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        return objective(self.model, self.shape, self.classes, "cpu").layout.total


Times = Callable[[Gradient], float]
"""Seconds that a gradient takes."""


@functools.cache
def objective(model: str, shape: tuple[int, ...], classes: int, device: str) -> Objective:
    """The loss of a model, whose choice is given as JSON."""
    choice: ModelChoice = TypeAdapter(AnyModel).validate_json(model)
    module = build_model(choice, shape, classes, 0)
    return Objective(module.to(device), channels_last=device == "cpu", buffer_mode=choice.buffer_mode)


@dataclass(frozen=True)
class GradientTimes:
    """Times of gradients in milliseconds, and where and when they were measured.

    A time that is not known yet is measured on `device`; without a device, a `UserError` says how to measure it.
    """

    machine: str
    day: str
    device: torch.device | None = None
    known: dict[Gradient, float] = field(default_factory=dict)

    @classmethod
    def measured(cls, device: torch.device) -> Self:
        """Times on this machine; each is measured when it is first requested."""
        return cls(machine(device), datetime.datetime.now(tz=datetime.UTC).date().isoformat(), device)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Times from a file."""
        try:
            rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
            known = {
                Gradient(
                    row["model"],
                    tuple(int(row[side]) for side in SHAPE if row[side]),
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
            raise UserError(f"'{file}' is not a table with the columns {', '.join(COLUMNS)}") from None

    def write(self, file: Path) -> None:
        """Write all known times, sorted."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for gradient, milliseconds in sorted(self.known.items()):
            model, shape, classes, batch = gradient
            sides = [*shape, *[""] * (len(SHAPE) - len(shape))]
            writer.writerow([model, *sides, classes, batch, f"{milliseconds:g}", self.machine, self.day])
        write_text(file, text.getvalue())

    def compared(self, stored: "GradientTimes") -> list[str]:
        """Each measured time next to the stored one, in words."""
        lines = []
        for gradient, milliseconds in sorted(self.known.items()):
            known = stored.known.get(gradient)
            there = "no stored time" if known is None else f"costs.csv: {known:g} ms on {stored.machine}"
            name = json.loads(gradient.model)["name"]
            lines.append(
                f"measured now: {milliseconds:g} ms per gradient of {name} with batch {gradient.batch} ({there}); "
                "on a busy machine too high"
            )
        return lines

    def __call__(self, gradient: Gradient) -> float:
        """Seconds of a gradient."""
        if gradient not in self.known:
            if self.device is None:
                raise UserError(f"the time of {gradient} is not known, and no device is given to measure it")
            self.known[gradient] = float(f"{1000 * _measure(gradient, self.device):.4g}")  # as in the file
        return self.known[gradient] / 1000


def labels_of(loss: Objective, x: Tensor) -> tuple[int, ...]:
    """The shape of the labels of inputs x `[B, ...]`: `[B]`, or `[B, height, width]` if the model scores pixels."""
    return (len(x), *loss.logits(loss.initial(), x[:1]).shape[2:])


def _measure(gradient: Gradient, device: torch.device) -> float:
    """Seconds of one gradient with one thread. For large models or mini-batches, the time per sample of a smaller
    mini-batch is used: time is proportional to the number of samples there, and the mini-batch may not fit into memory.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        few = min(FEW, gradient.batch)
        seconds = _shortest(gradient._replace(batch=few), device, repeats=1, seconds=0)
        if seconds > LONG:
            return seconds * gradient.batch / few
        most = min(MOST, gradient.batch)
        return _shortest(gradient._replace(batch=most), device, REPEATS, SECONDS) * gradient.batch / most
    finally:
        torch.set_num_threads(threads)


def _shortest(gradient: Gradient, device: torch.device, repeats: int, seconds: float) -> float:
    """The shortest of several times, after a first one that is not counted: other load only makes them longer.

    With two threads, other load made them up to ten times longer.
    """
    model, shape, classes, batch = gradient
    loss = objective(model, shape, classes, str(device))
    stream = torch.Generator().manual_seed(0)
    x = torch.rand(batch, *shape, generator=stream).to(device)
    w = loss.initial()
    y = torch.randint(classes, labels_of(loss, x), generator=stream).to(device)
    times: list[float] = []
    while len(times) <= repeats or sum(times) < seconds:
        began = time.perf_counter()
        float(loss.gradient(w, x, y)[1])  # waits for the device
        times.append(time.perf_counter() - began)
    return min(times[1:])
