"""The parts that measure: the correctness of a back end, or the speed of a contender. Rows are printed as JSON."""

import gc
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from fedflat.bench.engine.backends import BACKENDS, GRAPHS
from fedflat.bench.engine.backends.graph import Graph
from fedflat.bench.engine.batches import EpochBatches
from fedflat.bench.engine.federation import Federation, FederationState
from fedflat.bench.engine.local import Backend
from fedflat.bench.engine.method_costs import example
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.methods.catalog import CATALOG
from fedflat.bench.training.engine_choice import EngineChoice
from tests.benchmarks import machine
from tests.benchmarks.floor import Floor, synchronised
from tests.benchmarks.ours import VARIANTS, Ours, Variant
from tests.benchmarks.plain import Plain
from tests.benchmarks.sizes import Shape
from tests.benchmarks.workload import GRADIENTS, Workload
from tests.problems import Problem
from tests.tape import Tapes

Row = dict[str, Any]
CPU = torch.device("cpu")
PARTICIPANTS = [[0, 1], [1, 3], [0, 1, 2, 3], [2], [0, 1], [0, 1, 2, 3]]
"""Clients of unequal size; the last two rounds replay graphs."""
LAUNCHES = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch"}
WARM_UP, SECONDS, MOST_ROUNDS = 3, 2.0, 10
BATCH = 64

SPEED = {
    "lenet": (Shape(10, 20), ("fedavg", "fedsam", "fedsmoo")),
    "resnet18_gn": (Shape(10, 4), ("fedavg", "fedsmoo")),
}
"""Rounds and methods by model."""
QUICK = {"lenet": (Shape(2, 2), ("fedavg",))}
QUICK_BATCH = 2
QUICK_METHODS = ("fedavg", "fedsmoo", "mimelite", "fedrcl")

TF32 = Variant("FedFlat tf32", "tf32")


def correctness(name: str, device: torch.device, *, quick: bool) -> Iterator[Row]:
    """For each method the largest difference from the loop on a CPU after some rounds in float64, or an error."""
    for method in QUICK_METHODS if quick else CATALOG:
        try:
            found: float | str = _distance(method, name, device)
        except Exception as error:
            found = _line(error)
        yield {"method": method, "backend": name, "difference": found}


def _distance(method: str, name: str, device: torch.device) -> float:
    """The largest difference between any vectors of the last state, relative to the largest number of the vector."""
    expected = _play(method, BACKENDS["loop"](), CPU)
    found = _play(method, backend_of(name, device), device)
    pairs = [(expected.w, found.w)] + [(v, found.server[key]) for key, v in expected.server.items()]
    pairs += [(v, found.clients[i][key]) for i, vectors in expected.clients.items() for key, v in vectors.items()]
    return max(float((a - b.cpu()).abs().max() / a.abs().max().clamp(min=1)) for a, b in pairs if a.numel())


def _play(method: str, backend: Backend, device: torch.device) -> FederationState:
    federation: Federation = Problem(1).federation(
        method, example(CATALOG[method]), device=device, clip=2.0, weight_decay=0.01, lr_decay=0.95, local_momentum=0.9
    )
    federation.batch_sampler = EpochBatches(federation.batch_sampler.split, 2, 4, seed=3)
    state = federation.start(federation.objective.initial())
    for active in PARTICIPANTS:
        state, _ = federation.run_round(state, active, backend=backend)
    return state


def backend_of(name: str, device: torch.device) -> Backend:
    """A back end; on a CPU, the operations of graphs are repeated one by one."""
    kind = BACKENDS[name]
    return kind(Tapes()) if issubclass(kind, Graph) and device.type == "cpu" else kind()


def speed(name: str, device: torch.device, *, quick: bool) -> Iterator[Row]:
    """Milliseconds per local step of a client, rounds per second, memory and launches, by model, method, precision."""
    for model, (shape, methods) in (QUICK if quick else SPEED).items():
        batch = QUICK_BATCH if quick else BATCH
        workload = Workload(model, shape.clients, shape.steps * batch, batch)
        if name == "floor":
            yield from _floor(workload, device)
            continue
        for method in methods:
            for variant in variants(name, device):
                row = {"model": model, "method": method, "contender": name, "precision": variant.precision}
                try:
                    yield row | _timed(name, workload, method, variant, shape, device, 0 if quick else SECONDS)
                except Exception as error:
                    yield row | {"error": _line(error)}
                _free(device)


def variants(name: str, device: torch.device) -> Sequence[Variant]:
    """The precisions that are measured: all of them for graphs and branches on a GPU."""
    fp32, bf16 = VARIANTS.values()
    return (fp32, TF32, bf16) if name.partition(" ")[0] in GRAPHS and device.type == "cuda" else (fp32,)


def _timed(
    name: str, workload: Workload, method: str, variant: Variant, shape: Shape, device: torch.device, seconds: float
) -> Row:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    run = _contender(name, workload, method, variant, device)
    clients, images = shape.clients, shape.steps * workload.batch
    if name == "plain":  # slow, and every step is like the others
        clients = min(clients, 2)

    def one_round() -> float:
        began = synchronised(device)
        run.round(range(clients), images)
        return synchronised(device) - began

    warm_up = [one_round() for _ in range(1 if name == "plain" else WARM_UP)]
    times: list[float] = []
    while not times or (sum(times) < seconds and len(times) < MOST_ROUNDS):
        times.append(one_round())
    steps = clients * shape.steps
    memory = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else machine.peak_memory_mib()
    return {
        "ms": 1e3 * min(times) / steps,
        "rounds_per_second": steps / min(times) / (shape.clients * shape.steps),
        "first_round": warm_up[0],
        "mib": memory,
        "launches": _launches(one_round, device) / steps,
    }


def _contender(name: str, workload: Workload, method: str, variant: Variant, device: torch.device) -> Any:
    if name == "plain":
        return Plain(workload, method, device)
    backend, _, form = name.partition(" ")
    on_cpu = device.type == "cpu" and backend in GRAPHS
    choice = EngineChoice("cohort" if on_cpu else backend, threads=torch.get_num_threads(), im2col=form == "im2col")
    ours = Ours(workload, method, device, variant, choice=choice)
    if on_cpu:
        ours._backend = backend_of(backend, device)
    return ours


def _launches(one_round: Any, device: torch.device) -> float:
    """Kernels and graphs that a round launches; on a CPU, torch's operations."""
    cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]) as profiled:
        one_round()
    counts = {event.key: event.count for event in profiled.key_averages()}
    return float(sum(n for name, n in counts.items() if (name in LAUNCHES if cuda else name.startswith("aten::"))))


def _floor(workload: Workload, device: torch.device) -> Iterator[Row]:
    """Forward and backward passes alone, in the faster layout: one row per precision and method."""
    seconds = Floor(workload, device).seconds(repeats=10 if device.type == "cuda" else 1)
    for precision, layouts in seconds.items():
        for method, gradients in GRADIENTS.items():
            row = {"model": workload.model, "method": method, "contender": "floor", "precision": precision}
            yield row | {"ms": 1e3 * gradients * min(layouts.values())}


def _free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def about(device: torch.device) -> Iterator[Row]:
    """The machine."""
    row: Row = {"python": sys.version.split()[0], "torch": torch.__version__, "device": "cpu"}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        row |= {"device": f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB", "CUDA": torch.version.cuda}
    yield row


def main() -> None:
    """python -m tests.gpu.parts PART NAME DEVICE [quick]"""
    part, name, given, *rest = sys.argv[1:]
    device, quick = prepare_device(given, torch.get_num_threads()), rest == ["quick"]
    if part == "about":
        rows = about(device)
    else:
        rows = {"correctness": correctness, "speed": speed}[part](name, device, quick=quick)
    began = time.perf_counter()
    for row in rows:
        print(json.dumps(row | {"seconds": round(time.perf_counter() - began, 1)}), flush=True)


if __name__ == "__main__":
    main()
