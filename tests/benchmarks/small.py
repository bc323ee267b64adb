"""Small models on digits: runs per minute, and the cost of a client's step."""

from collections.abc import Mapping

from tests.benchmarks.ours import VARIANTS
from tests.benchmarks.process import Process
from tests.benchmarks.report import Cell, Section, Spread, Table
from tests.benchmarks.setting import Setting
from tests.benchmarks.sizes import Small
from tests.benchmarks.workload import GRADIENTS, Workload

IMAGES, BATCH, EPOCHS = 45, 16, 2
"""A client's images and training, as in the quick experiment."""
ROUNDS_OF_A_RUN = 30
SEEDS = 3
FLOOR_REPEATS = 50
PLAIN = "plain"


def measure(setting: Setting) -> list[Section]:
    """One table of all models and methods."""
    small = setting.sizes.small
    rows: list[tuple[Cell, ...]] = []
    with (
        Process(setting.device, 1, keeps_memory=False) as other,
        Process(setting.device, 1, keeps_memory=True) as own,
        Process(setting.device, 1, keeps_memory=True) as alone,
    ):
        for model in small.models:
            workload = Workload(model, small.clients, IMAGES, BATCH, EPOCHS, augmented=False)
            alone.build(model, "floor", workload=workload)
            for method in small.methods:
                setting.progress(f"{model}: {method}")
                other.build(f"{PLAIN} {model} {method}", "plain", workload=workload, method=method)
                contenders = {PLAIN: other}
                name = next(iter(VARIANTS))
                given = {"workload": workload, "method": method, "variant": name, "seeds": SEEDS}
                own.build(f"{name} {model} {method}", "ours", **given)
                contenders[name] = own
                rows += _rows(small, workload, method, contenders, alone)
    about = (
        f"Digits, {small.active} of {small.clients} clients, {IMAGES} images each, batch {BATCH}, {EPOCHS} epochs, one "
        f"thread. A run is {ROUNDS_OF_A_RUN} rounds of training, without evaluation; runs per minute are those of one "
        f"process. FedFlat trains {SEEDS} seeds together, as for a cell of an experiment. The floor is the time of "
        "the forward and backward passes on one full batch of one client."
    )
    header = (
        "model and method", "contender", "ms per client step", "runs per minute", "plain / it", "over the floor, %",
    )  # fmt: skip
    return [Section("Small models", [Table(about, header, rows)])]


def _rows(
    small: Small, workload: Workload, method: str, contenders: Mapping[str, Process], alone: Process
) -> list[tuple[Cell, ...]]:
    steps = small.active * workload.steps(IMAGES)
    seconds: dict[str, list[float]] = {}
    floors: dict[str, list[float]] = {}
    for turn in range(small.repeats + 1):  # the first one warms up
        at_turn = {
            name: process.ask(f"{name} {workload.model} {method}", "seconds", clients=small.active, images=IMAGES)
            for name, process in contenders.items()
        }
        floor = alone.ask(workload.model, "seconds", repeats=FLOOR_REPEATS)
        if turn > 0:
            for name, value in at_turn.items():
                seconds.setdefault(name, []).append(value / steps / (1 if name == PLAIN else SEEDS))
            for precision, layouts in floor.items():
                floors.setdefault(precision, []).append(min(layouts.values()))
    rows: list[tuple[Cell, ...]] = []
    plain = Spread(tuple(seconds[PLAIN]))
    for name, values in seconds.items():
        step = Spread(tuple(values))
        runs = Spread(tuple(60 / (ROUNDS_OF_A_RUN * steps * v) for v in values))
        ratio = over = None
        if name != PLAIN:
            passes = Spread(tuple(floors[VARIANTS[name].precision])) * GRADIENTS[method]
            ratio, over = plain / step, step.percent_over(passes)
        rows.append((f"{workload.model} {method}", name, step * 1e3, runs, ratio, over))
    return rows
