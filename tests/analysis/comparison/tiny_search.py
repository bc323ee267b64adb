"""A real search by a protocol: one pair of methods on tiny data, with all that a benchmark of flatness trains."""

from pathlib import Path

from fedflat.analysis.comparison.flat.stored import store
from fedflat.bench.host.progress import silent
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.tuning.protocol.queue import Queue, work
from fedflat.bench.tuning.protocol.reading import SearchedGrid
from fedflat.bench.tuning.protocol.units import Units
from tests.bench.tuning import tiny_protocol as tiny


def store_one_pair(folder: Path) -> Path:
    """Search, and store in `results/baselines` of the folder; its protocol is grid/search.yaml."""
    methods = {"fedsam": tiny.PROTOCOL["methods"]["fedsam"]}
    file = tiny.write(folder / "grid", methods=methods, pairs={"ten": [["fedsam", "fedavg"]]})
    queue = Queue(Units(SearchedGrid.read(str(file)), folder / "results"))
    names = ["main.ten", "main.equal_compute", "main.itself", "noise", "central"]
    assert work(queue.named(names), prepare_device("cpu", 1, silent), silent)
    store(str(file), folder / "results", folder / "results/baselines", progress=silent)
    return folder
