"""Points of a loss landscape, compared with their forward passes alone."""

from collections.abc import Sequence

import torch

from fedflat.analysis.measures.directions import Family, filter_normalised_directions
from fedflat.analysis.measures.landscape import CachedBatches, Point, points_together, score
from fedflat.bench.engine.objective import Objective
from fedflat.bench.host.torch_device import prepare_device
from fedflat.bench.models import ModelChoice, parse_model
from fedflat.bench.numerics.streams import torch_stream
from fedflat.bench.training.run_setup import EVALUATION_BATCH
from tests.benchmarks.floor import synchronised
from tests.benchmarks.process import Process
from tests.benchmarks.report import Section, Spread, Table
from tests.benchmarks.setting import Setting
from tests.benchmarks.workload import Workload

GRID = 41
"""Points per direction of the plane for which minutes are reported."""


class Points:
    """The evaluator of planes on a workload's images, and a bare model with the same batches."""

    def __init__(self, workload: Workload, device: torch.device) -> None:
        device = prepare_device(str(device), torch.get_num_threads())
        self._device = device
        self._objective = Objective(workload.module(0).to(device), channels_last=device.type == "cpu")
        self._model = workload.module(0).to(device).eval()
        x, y = (part.to(device) for part in workload.batch_of(workload.images))
        size = EVALUATION_BATCH[device.type]
        self._data = CachedBatches(self._objective, list(zip(x.split(size), y.split(size), strict=True)))
        w = self._objective.initial()
        self._plane = Family(w, filter_normalised_directions(self._objective.layout, w, torch_stream(0, "landscape")))
        self._together = points_together(self._objective, self._plane, self._data)

    def seconds(self, points: int) -> float:
        """Seconds of a point (its model, loss and error): the mean over `points` points."""
        grid: Sequence[Point] = [(i / points, -i / points) for i in range(points)]
        began = synchronised(self._device)
        for first in range(0, points, self._together):
            score(self._objective, self._plane, grid[first : first + self._together], self._data)
        return (synchronised(self._device) - began) / points

    @torch.no_grad()
    def bare_seconds(self, points: int) -> float:
        """Seconds of the forward passes over all images, in the same memory format: the mean over `points` repeats."""
        began = synchronised(self._device)
        for _ in range(points):
            for x, _ in self._data:
                self._model(x)
        return (synchronised(self._device) - began) / points


def measure(setting: Setting) -> list[Section]:
    """One row per model."""
    sizes = setting.sizes.landscape
    rows = []
    for name in sizes.models:
        setting.progress(f"{name}: landscape")
        workload = Workload(name, 1, sizes.images, batch=sizes.images, augmented=False)
        choice: ModelChoice = parse_model(name)
        points, bare = [], []
        with Process(setting.device, choice.threads(setting.all_cores), keeps_memory=True) as process:
            process.build("points", "points", workload=workload)
            for turn in range(sizes.repeats + 1):  # the first one warms up
                pair = [process.ask("points", kind, points=sizes.points) for kind in ("bare_seconds", "seconds")]
                if turn > 0:
                    bare.append(pair[0])
                    points.append(pair[1])
        point, passes = Spread(tuple(points)), Spread(tuple(bare))
        rate = Spread(tuple(1 / seconds for seconds in points))
        rows.append((name, passes * 1e3, point * 1e3, rate, point.percent_over(passes), point * (GRID**2 / 60)))
    about = (
        f"Loss and error at points of a plane, over {sizes.images:,} images, compared with the forward passes alone "
        f"over the same batches. The last column is the time of a plane of {GRID}×{GRID} points at this speed."
    )
    header = ("model", "ms of forward passes", "ms per point", "points per second", "over the passes, %", "minutes")
    return [Section("Landscape", [Table(about, header, rows)])]
