"""The arithmetic alone: forward and backward passes on tensors in memory, matrix products, and copies."""

import functools
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks.machine import has_bf16
from tests.benchmarks.workload import Workload

WARM_UP = 3


def synchronised(device: torch.device) -> float:
    """The time in seconds when all work so far is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def precisions(device: torch.device) -> list[str]:
    """fp32, and the other precisions that the device supports."""
    if device.type == "cuda":
        return ["fp32", "tf32", "bf16"]
    return ["fp32", "bf16"] if has_bf16() else ["fp32"]


def _use(precision: str) -> None:
    """Switch TF32 in matrix products and convolutions on a GPU on or off."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


class Floor:
    """The mini-batch gradient of a workload's model, and nothing else, in every precision and memory layout.

    On a GPU each is captured once as a CUDA graph and then replayed, so that no time goes into launching kernels.
    """

    def __init__(self, workload: Workload, device: torch.device) -> None:
        torch.backends.cudnn.benchmark = True
        self._device = device
        self._workload = workload
        self._passes = {
            (precision, layout): self._pass(precision, layout)
            for precision in precisions(device)
            for layout in ("contiguous", "channels_last")
        }

    def seconds(self, repeats: int) -> dict[str, dict[str, float]]:
        """Seconds of one pass by precision and layout, the mean of some passes in a row."""
        seconds: dict[str, dict[str, float]] = {}
        for (precision, layout), run in self._passes.items():
            began = synchronised(self._device)
            for _ in range(repeats):
                run()
            elapsed = synchronised(self._device) - began
            seconds.setdefault(precision, {})[layout] = elapsed / repeats
        return seconds

    def operations(self) -> float:
        """Floating-point operations of one pass, forward and backward: a multiplication and an addition are two."""
        model = self._workload.module(0)
        x, y = self._workload.batch_of(self._workload.batch)
        with FlopCounterMode(display=False) as counter:
            torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
        return float(counter.get_total_flops())

    def _pass(self, precision: str, layout: str) -> Callable[[], object]:
        form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        model = self._workload.module(0).to(self._device, memory_format=form).train()
        x, y = (part.to(self._device) for part in self._workload.batch_of(self._workload.batch))
        x = x.contiguous(memory_format=form)
        parameters = list(model.parameters())

        def gradient() -> tuple[Tensor, ...]:
            with torch.autocast(self._device.type, torch.bfloat16, enabled=precision == "bf16"):
                loss = F.cross_entropy(model(x), y)
            return torch.autograd.grad(loss, parameters)

        _use(precision)
        if self._device.type != "cuda":
            for _ in range(WARM_UP):
                gradient()
            return gradient
        aside = torch.cuda.Stream(self._device)
        aside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                gradient()
        torch.cuda.current_stream(self._device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            gradient()
        return graph.replay


class Rates:
    """The device's own speed: products of square matrices, and copies of vectors."""

    def __init__(self, device: torch.device, side: int) -> None:
        self._device = device
        self._side = side

    def multiply(self, repeats: int) -> dict[str, float]:
        """Floating-point operations per second by precision."""
        rates: dict[str, float] = {}
        for precision in precisions(self._device):
            _use(precision)
            dtype = torch.bfloat16 if precision == "bf16" else torch.float32
            a, b, out = (torch.ones(self._side, self._side, dtype=dtype, device=self._device) for _ in range(3))
            seconds = self._timed(functools.partial(torch.mm, a, b, out=out), repeats)
            rates[precision] = 2 * self._side**3 / seconds
        return rates

    def copy(self, length: int, repeats: int) -> float:
        """Bytes per second, read and written together, of copies among some fp32 vectors, as a method's terms are."""
        vectors = [torch.ones(length, device=self._device) for _ in range(4)]

        def around() -> None:
            for a, b in zip(vectors, vectors[1:] + vectors[:1], strict=True):
                b.copy_(a)

        return 2 * 4 * length * len(vectors) / self._timed(around, repeats)

    def _timed(self, run: Callable[[], object], repeats: int) -> float:
        for _ in range(WARM_UP):
            run()
        began = synchronised(self._device)
        for _ in range(repeats):
            run()
        return (synchronised(self._device) - began) / repeats
