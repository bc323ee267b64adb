"""Large models: the engine against the plain reference, and against forward and backward passes alone."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.benchmarks.ours import VARIANTS
from tests.benchmarks.passes import FEWEST
from tests.benchmarks.process import Process
from tests.benchmarks.report import Cell, Section, Spread, Table
from tests.benchmarks.setting import Setting
from tests.benchmarks.sizes import Large, Shape
from tests.benchmarks.workload import GRADIENTS, Workload

ROUND = Shape(10, 50)
"""The round whose time is reported."""
PLAIN = "plain"
LAYOUT_NAMES = {"contiguous": "contiguous", "channels_last": "channels last"}


@dataclass
class Measured:
    """One contender under one method: seconds per local step of a whole round, and MiB at the peak."""

    seconds: list[float] = field(default_factory=list)
    memory: float = 0.0

    @property
    def step(self) -> Spread:
        """Seconds of a local step, including its share of the other costs of a client and a round."""
        return Spread(tuple(self.seconds))


Passes = dict[str, dict[str, list[float]]]
"""Seconds of a pass by precision and layout."""


def measure(setting: Setting) -> list[Section]:
    """One section per model."""
    return [_section(setting, sizes) for sizes in setting.sizes.large]


def _section(setting: Setting, sizes: Large) -> Section:
    workload = Workload(sizes.model, sizes.clients, sizes.round.steps * sizes.batch, sizes.batch)
    contenders: dict[str, dict[str, Measured]] = {}
    floors: dict[str, Passes] = {}
    with Process(setting.device, setting.all_cores, keeps_memory=True) as alone:
        alone.build("floor", "floor", workload=workload)
        for method in sizes.methods:
            setting.progress(f"{sizes.model}: {method}")
            contenders[method], floors[method] = _method(setting, sizes, workload, method, alone)
        operations = alone.ask("floor", "operations")
    tables = [
        _against_plain(setting, sizes, contenders),
        _floor(setting, floors, operations),
        _overhead(contenders, floors),
    ]
    return Section(f"{sizes.model}, batch {sizes.batch}, {setting.all_cores} threads", tables)


def _method(
    setting: Setting, sizes: Large, workload: Workload, method: str, alone: Process
) -> tuple[dict[str, Measured], Passes]:
    """All contenders in turn, and in each turn the passes alone."""
    names = [PLAIN, *VARIANTS]
    measured = {name: Measured() for name in names}
    passes: Passes = {}
    with ExitStack() as stack:
        processes: dict[str, Process] = {}

        def seconds_of_step(name: str, shape: Shape) -> float:
            seconds = processes[name].ask("run", "seconds", clients=shape.clients, images=shape.steps * sizes.batch)
            return seconds / (shape.clients * shape.steps)

        for name in names:
            keeps_memory = name != PLAIN
            process = stack.enter_context(Process(setting.device, setting.all_cores, keeps_memory=keeps_memory))
            if name == PLAIN:
                process.build("run", "plain", workload=workload, method=method)
            else:
                process.build("run", "ours", workload=workload, method=method, variant=name)
            processes[name] = process
            # Warm up, one process after the other: each chooses its memory format on a quiet machine, all clients get
            # their state, the heap its size, and a GPU its graph.
            seconds_of_step(name, Shape(sizes.clients, 1))
            seconds_of_step(name, sizes.round)
        for _ in range(sizes.repeats):
            for name in names:
                measured[name].seconds.append(seconds_of_step(name, sizes.round))
            for precision, layouts in alone.ask("floor", "seconds", repeats=setting.passes).items():
                for layout, seconds in layouts.items():
                    passes.setdefault(precision, {}).setdefault(layout, []).append(seconds)
        for name in names:
            measured[name].memory = processes[name].ask("run", "peak_memory_mib")
    return measured, passes


def _against_plain(setting: Setting, sizes: Large, contenders: Mapping[str, Mapping[str, Measured]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for method, measured in contenders.items():
        plain = measured[PLAIN]
        for name, own in measured.items():
            ratio = None if own is plain else plain.step / own.step
            round_of_it = own.step * (ROUND.clients * ROUND.steps)
            rows.append((method, name, own.step * 1e3, round_of_it, ratio, own.memory))
    memory = "of the GPU's memory" if setting.device == "cuda" else "of the process"
    about = (
        f"Compared with the plain reference: the time per local step in whole rounds of {sizes.round}, the time of "
        f"a round of {ROUND} at this speed, and the peak memory {memory} with the states of {sizes.clients} clients."
    )
    return Table(about, ("method", "contender", "ms per local step", "s per round", "plain / it", "peak MiB"), rows)


def _best_layout(passes: Mapping[str, list[float]]) -> str:
    return min(passes, key=lambda layout: Spread(tuple(passes[layout])).median)


def _floor(setting: Setting, floors: Mapping[str, Passes], operations: float) -> Table:
    """All turns of all methods together."""
    rates = setting.matrix_rates
    rows: list[tuple[Cell, ...]] = []
    first = next(iter(floors.values()))
    for precision, layouts in first.items():
        for layout in layouts:
            seconds = Spread(tuple(s for passes in floors.values() for s in passes[precision][layout]))
            share = 100 * operations / seconds.median / rates[precision]
            rows.append((precision, LAYOUT_NAMES[layout], seconds * 1e3, operations / seconds.median / 1e9, share))
    about = (
        f"The arithmetic floor: one forward and backward pass on tensors in memory, {operations / 1e9:.2f} billion "
        "floating-point operations. The next table uses the faster layout of each precision."
    )
    return Table(about, ("precision", "layout", "ms per pass", "GFLOP/s", "% of the matrix rate"), rows)


def _overhead(contenders: Mapping[str, Mapping[str, Measured]], floors: Mapping[str, Passes]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for method, measured in contenders.items():
        for name, variant in VARIANTS.items():
            passes = floors[method][variant.precision]
            floor = Spread(tuple(passes[_best_layout(passes)])) * GRADIENTS[method]
            own = measured[name]
            rows.append((method, name, GRADIENTS[method], floor * 1e3, own.step * 1e3, own.step.percent_over(floor)))
    header = ("method", "contender", "gradients", "floor, ms", "local step, ms", "over the floor, %")
    return Table("Overhead over the floor: passes alone × the method's gradients per local step.", header, rows)


def memory_passes(setting: Setting) -> Section:
    """The cost of a local step's vectors, from the counted operations and the measured copy rate."""
    rows: list[tuple[Cell, ...]] = []
    for sizes in setting.sizes.large:
        setting.progress(f"{sizes.model}: passes over memory")
        parameters = setting.process.ask("about", "parameters", model=sizes.model)
        one = 4e3 * parameters / setting.copy_rate(parameters)
        for method in sizes.methods:
            read, written = setting.process.ask("about", "vectors_per_step", model=sizes.model, method=method)
            fewest = FEWEST[method].total
            rows.append((
                sizes.model, method, parameters, float(read), float(written), fewest,
                one, (read + written) * one, fewest * one,
            ))  # fmt: skip
    header = (
        "model", "method", "P", "vectors read", "vectors written", "fewest, read and written", "ms per vector",
        "ms per step", "ms per step, fewest",
    )  # fmt: skip
    about = (
        "Passes over memory in a local step outside the forward and backward passes, in vectors of P fp32 numbers: the "
        "number counted in the engine's loop, and the smallest number that the method's equations allow. Times are "
        "computed from the copy rate measured for vectors of this length."
    )
    return Section("Passes over memory", [Table(about, header, rows)])
