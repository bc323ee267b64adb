"""Clients of a large model: one after another with all threads, or side by side with one thread each."""

from contextlib import ExitStack

from fedflat.bench.training.engine_choice import EngineChoice
from tests.benchmarks.process import Process
from tests.benchmarks.report import Cell, Spread, Table
from tests.benchmarks.setting import Setting
from tests.benchmarks.sizes import SideBySide
from tests.benchmarks.workload import Workload


def tables(setting: Setting) -> list[Table]:
    """One table; none on a GPU, which computes one client at a time or all in one batch."""
    shapes = [(sizes, method) for sizes in setting.sizes.side_by_side for method in sizes.methods]
    rows = [row for sizes, method in shapes for row in _rows(setting, sizes, method)]
    about = (
        "Clients at the same time: the loop trains one client after another with all threads, `parallel` several "
        "clients with one thread each. FP32; each contender in a process of its own."
    )
    header = ("model, round and method", "contender", "ms per round", "ms per local step", "first / it", "peak MiB")
    return [Table(about, header, rows)] if rows else []


def _rows(setting: Setting, sizes: SideBySide, method: str) -> list[tuple[Cell, ...]]:
    """The contenders of one model and method, in turn."""
    setting.progress(f"{sizes.model}: {method}, clients side by side")
    clients, images = sizes.round.clients, sizes.round.steps * sizes.batch
    workload = Workload(sizes.model, clients, images, sizes.batch)
    choices = [
        EngineChoice(backend, threads=setting.all_cores, channels_last=channels_last)
        for backend in ("loop", "parallel")
        for channels_last in (False, True)
    ]
    seconds: dict[EngineChoice, list[float]] = {choice: [] for choice in choices}
    with ExitStack() as stack:
        processes = {
            choice: stack.enter_context(Process(setting.device, setting.all_cores, keeps_memory=True))
            for choice in choices
        }
        for choice, process in processes.items():
            process.build("run", "ours", workload=workload, method=method, choice=choice)
        for turn in range(sizes.repeats + 1):  # the first one warms up
            for choice, process in processes.items():
                measured = process.ask("run", "seconds", clients=clients, images=images)
                if turn > 0:
                    seconds[choice].append(measured)
        memory = {choice: process.ask("run", "peak_memory_mib") for choice, process in processes.items()}
    name, steps = f"{sizes.model}, {sizes.round}, {method}", clients * sizes.round.steps
    rounds = {choice: Spread(tuple(values)) * 1e3 for choice, values in seconds.items()}
    first = rounds[choices[0]]
    return [(name, str(choice), own, own * (1 / steps), first / own, memory[choice]) for choice, own in rounds.items()]
