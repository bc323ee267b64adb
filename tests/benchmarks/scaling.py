"""How the engine's time and memory grow with clients per round, registered clients, seeds, and clients side by side."""

from contextlib import ExitStack

from tests.benchmarks import side_by_side
from tests.benchmarks.ours import VARIANTS
from tests.benchmarks.process import Process
from tests.benchmarks.report import Cell, Section, Spread, Table
from tests.benchmarks.setting import Setting
from tests.benchmarks.workload import Workload

METHOD = "scaffold"
IMAGES = 4
"""Images of each client, in one batch: little arithmetic, so that the other costs of a client are visible."""
ROUNDS = 5


def measure(setting: Setting) -> list[Section]:
    """All tables."""
    tables = [_clients_per_round(setting), _registered(setting), _seeds(setting), *side_by_side.tables(setting)]
    return [Section("Scaling", tables)]


def _clients_per_round(setting: Setting) -> Table:
    scaling = setting.sizes.scaling
    setting.progress("clients per round")
    most = max(scaling.per_round)
    seconds: dict[int, list[float]] = {clients: [] for clients in scaling.per_round}
    with Process(setting.device, setting.all_cores, keeps_memory=True) as process:
        process.build("run", "ours", workload=Workload("lenet", most, IMAGES, IMAGES), method=METHOD)
        process.ask("run", "seconds", clients=most, images=IMAGES)  # warm up
        for _ in range(scaling.repeats):
            for clients, measured in seconds.items():
                measured.append(process.ask("run", "seconds", clients=clients, images=IMAGES))
    rows: list[tuple[Cell, ...]] = []
    for clients, measured in seconds.items():
        per_round = Spread(tuple(measured)) * 1e3
        rows.append((f"{clients:,}", per_round, per_round * (1 / clients)))
    about = f"Clients per round: SCAFFOLD, LeNet, one local step on {IMAGES} images each, {most} clients with state."
    return Table(about, ("clients per round", "ms per round", "ms per client"), rows)


def _registered(setting: Setting) -> Table:
    """Rounds of all federations in turn, each in its own process."""
    scaling = setting.sizes.scaling
    setting.progress("registered clients")
    with ExitStack() as stack:
        processes: dict[int, Process] = {}
        for clients in scaling.registered:
            process = stack.enter_context(Process(setting.device, setting.all_cores, keeps_memory=True))
            workload = Workload("lenet", clients, IMAGES, IMAGES)
            process.build("run", "registered", workload=workload, method=METHOD, active=scaling.active)
            processes[clients] = process
        begun = {clients: process.ask("run", "set_up") for clients, process in processes.items()}
        turns = [{n: process.ask("run", "play") for n, process in processes.items()} for _ in range(ROUNDS + 1)]
    rows: list[tuple[Cell, ...]] = []
    for clients, start in begun.items():
        played = [turn[clients] for turn in turns]
        first, last = played[0], played[-1]  # the first round warms up, and allocates memory that is needed only once
        joined = last["participants"] - first["participants"]
        grown = (last["memory_mib"] - first["memory_mib"]) / joined if joined else None
        seconds = Spread(tuple(row["seconds"] for row in played[1:])) * 1e3
        rows.append((f"{clients:,}", start["seconds"], seconds, last["memory_mib"], last["participants"], grown))
    model = next(iter(begun.values()))["model_mib"]
    about = (
        f"Registered clients: SCAFFOLD, LeNet ({model:.2f} MiB), one local step on {IMAGES} images, "
        f"{scaling.active} clients per round, drawn anew in each of {ROUNDS + 1} rounds. Memory includes GPU memory."
    )
    header = (
        "registered clients", "set-up, s", "ms per round", "process, MiB", "clients with state", "MiB per new client",
    )  # fmt: skip
    return Table(about, header, rows)


def _seeds(setting: Setting) -> Table:
    """The engine with several seeds at once, and the plain reference, which trains one after another."""
    scaling = setting.sizes.scaling
    setting.progress("seeds")
    clients, images, batch = scaling.seed_clients, scaling.seed_images, scaling.seed_batch
    workload = Workload(scaling.seed_model, clients, images, batch)
    threads = 1 if workload.on_digits else setting.all_cores
    seconds: dict[int, list[float]] = {seeds: [] for seeds in scaling.seeds}
    plain: list[float] = []
    with (
        Process(setting.device, threads, keeps_memory=True) as own,
        Process(setting.device, threads, keeps_memory=False) as other,
    ):
        other.build("run", "plain", workload=workload, method="fedavg")
        for seeds in scaling.seeds:
            own.build(f"{seeds} seeds", "ours", workload=workload, method="fedavg", seeds=seeds)
        for turn in range(scaling.repeats + 1):  # the first one warms up
            at_turn = {n: own.ask(f"{n} seeds", "seconds", clients=clients, images=images) for n in seconds}
            at_plain = other.ask("run", "seconds", clients=clients, images=images)
            if turn > 0:
                plain.append(at_plain)
                for n, measured in seconds.items():
                    measured.append(at_turn[n])
    rows: list[tuple[Cell, ...]] = []
    for n, measured in seconds.items():
        all_seeds, one_plain = Spread(tuple(measured)), Spread(tuple(plain))
        rows.append((str(n), all_seeds * 1e3, all_seeds * (1e3 / n), one_plain * n / all_seeds))
    about = (
        f"Seeds together: {scaling.seed_model}, FedAvg, {clients} clients × {workload.steps(images)} steps, batch "
        f"{batch}; {threads} thread{'s' if threads > 1 else ''}; {next(iter(VARIANTS))}. The plain reference takes "
        f"{Spread(tuple(plain)) * 1e3} ms per round of one seed."
    )
    return Table(about, ("seeds", "ms per round of all", "ms per round and seed", "plain / it"), rows)
