"""A run from start to end: starting the program, reading images, training, evaluating, writing results."""

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import yaml
from PIL import Image

from fedflat.bench.data.sources import parse_source
from fedflat.bench.files.atomic import write_text
from fedflat.bench.numerics.streams import numpy_stream
from tests.benchmarks import process
from tests.benchmarks.report import Cell, Section, Spread, Table
from tests.benchmarks.setting import Setting
from tests.benchmarks.sizes import Whole
from tests.benchmarks.workload import CLASSES, HYPERPARAMETERS, SETTINGS

PLAIN, FIRST, LATER = "plain", "FedFlat fp32, first run", "FedFlat fp32, later runs"
IMAGES = "images"
ARRAYS = "images.npz"
EXPERIMENT = "experiment.yaml"


@dataclass(frozen=True)
class Programs:
    """The commands of all contenders, and the files in `folder` that they read and write."""

    folder: Path
    sizes: Whole
    device: str
    threads: int

    def write_files(self) -> None:
        """Write random images of CIFAR's shape with random labels, for both programs, and FedFlat's experiment."""
        stream = numpy_stream(0, "benchmark images")
        arrays = {}
        for subset, count in (("train", self.sizes.clients * self.sizes.images), ("test", self.sizes.test_images)):
            images = stream.integers(256, size=(count, 32, 32, 3), dtype=np.uint8)
            labels = stream.permutation(np.arange(count) % CLASSES)
            arrays |= {f"{subset}_images": images, f"{subset}_labels": labels}
            for c in range(CLASSES):
                (self.folder / IMAGES / subset / str(c)).mkdir(parents=True)
            for k, (image, label) in enumerate(zip(images, labels, strict=True)):
                file = self.folder / IMAGES / subset / str(label) / f"{k:05}.png"
                Image.fromarray(image).save(file, compress_level=0)
        np.savez(self.folder / ARRAYS, **arrays)
        write_text(self.folder / EXPERIMENT, yaml.safe_dump(self._experiment(), sort_keys=False))
        parse_source({"name": "image_folder", "root": self.folder / IMAGES}).load(
            self.folder / "data"
        )  # decoded once, untimed

    def _experiment(self) -> dict[str, object]:
        sizes = self.sizes
        training = {"rounds": sizes.rounds, "local_epochs": 1, "batch_size": sizes.batch} | SETTINGS.model_dump(
            mode="json"
        )
        return {
            "name": "whole",
            "dataset": {"name": "image_folder", "root": IMAGES},
            "model": sizes.model,
            "training": training | {"augmentation": "fl_simulator"},
            "evaluation": {"every": sizes.every},
            "grid": {
                "partition": [{"name": "iid", "clients": sizes.clients}],
                "participation": [{"active": sizes.active}],
                "seeds": [0],
            },
            "methods": {method: {"hyperparameters": dict(HYPERPARAMETERS[method])} for method in sizes.methods},
        }

    def seconds(self, contender: str, method: str, turn: int) -> float:
        """Seconds of one run in a process of its own. FedFlat's first run of a turn times its engine's back ends."""
        sizes = self.sizes
        if contender == PLAIN:
            program = [
                "tests.benchmarks.plain_run", str(self.folder / ARRAYS), self.device, method, sizes.model,
                sizes.clients, sizes.active, sizes.batch, sizes.rounds, sizes.every,
            ]  # fmt: skip
        else:
            cell = f"{IMAGES}/iid/{sizes.active}-of-{sizes.clients}/{method}"
            out = self.folder / f"{turn} {contender}"
            program = ["fedflat", "run", str(self.folder / EXPERIMENT), cell, "--results", str(out)]
            program += ["--threads", self.threads, "--device", self.device]
        known = {"XDG_CACHE_HOME": str(self.folder / f"cache {turn} {method}")}
        began = time.perf_counter()
        process.run(["python", "-m", *map(str, program)], self.folder, process.environment(self.threads) | known)
        return time.perf_counter() - began


def measure(setting: Setting) -> list[Section]:
    """One section with a table of all methods."""
    sizes = setting.sizes.whole
    rows: list[tuple[Cell, ...]] = []
    with TemporaryDirectory() as folder:
        programs = Programs(Path(folder), sizes, setting.device, setting.all_cores)
        programs.write_files()
        for method in sizes.methods:
            seconds: dict[str, list[float]] = {}
            for turn in range(sizes.repeats):
                for contender in (PLAIN, FIRST, LATER):
                    setting.progress(f"{method}: {contender}, {turn + 1} of {sizes.repeats}")
                    seconds.setdefault(contender, []).append(programs.seconds(contender, method, turn))
            plain = Spread(tuple(seconds[PLAIN]))
            for contender, values in seconds.items():
                own = Spread(tuple(values))
                rows.append((method, contender, own, None if contender == PLAIN else plain / own))
    about = (
        f"{sizes.model}, {sizes.rounds} rounds, {sizes.active} of {sizes.clients} clients with {sizes.images} images, "
        f"batch {sizes.batch}, evaluated every {sizes.every} rounds on {sizes.test_images:,} test "
        f"images and {sizes.clients * sizes.images:,} training images. A process of its own, from start to end; "
        "FedFlat also writes checkpoints and results. A first run times the engine's back ends, later ones know them."
    )
    return [Section("A whole run", [Table(about, ("method", "contender", "s", "plain / it"), rows)])]
