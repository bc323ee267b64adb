"""Models of images with many pixels: the time of a round, and the memory of the process."""

from tests.benchmarks.ours import VARIANTS
from tests.benchmarks.process import Process
from tests.benchmarks.report import Cell, Section, Spread, Table
from tests.benchmarks.setting import Setting
from tests.benchmarks.sizes import Large
from tests.benchmarks.workload import Workload


def measure(setting: Setting) -> list[Section]:
    """One table of all models, methods and precisions."""
    rows = [
        _row(setting, sizes, method, variant)
        for sizes in setting.sizes.high_resolution
        for method in sizes.methods
        for variant in VARIANTS
    ]
    memory = "tensors on the GPU" if setting.device == "cuda" else "the process"
    about = (
        f"Whole rounds, without evaluation, of models with random weights on random images, {setting.all_cores} "
        f"threads. The memory is that of {memory}, with the states of all clients of the round. BiSeNetV2's loss is "
        "that of the hardest quarter of the pixels."
    )
    header = ("model", "images", "batch", "round", "method", "contender", "s per round", "s per local step", "peak MiB")
    return [Section("High resolution", [Table(about, header, rows)])]


def _row(setting: Setting, sizes: Large, method: str, variant: str) -> tuple[Cell, ...]:
    """Each contender in a process of its own, so that peaks of memory are its own."""
    setting.progress(f"{sizes.model}: {method}, {variant}")
    clients, images = sizes.round.clients, sizes.round.steps * sizes.batch
    workload = Workload(sizes.model, sizes.clients, images, sizes.batch, augmented=False)
    with Process(setting.device, setting.all_cores, keeps_memory=True) as process:
        process.build("run", "ours", workload=workload, method=method, variant=variant)
        process.ask("run", "seconds", clients=clients, images=images)  # all clients get their state
        turns = [process.ask("run", "seconds", clients=clients, images=images) for _ in range(sizes.repeats)]
        memory = process.ask("run", "peak_memory_mib")
    seconds = Spread(tuple(turns))
    height, width = workload.shape[1:]
    of_step = seconds * (1 / (clients * sizes.round.steps))
    what = (sizes.model, f"{height}×{width}", sizes.batch, str(sizes.round), method, variant)
    return (*what, seconds, of_step, memory)
