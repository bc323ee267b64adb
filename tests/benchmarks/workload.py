"""The workload of all contenders: a model, images, clients, and the settings of the local step."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedflat.bench.data.dataset import DeviceData
from fedflat.bench.data.sources.digits import Digits
from fedflat.bench.engine.step_settings import StepSettings
from fedflat.bench.models import build_model, parse_model
from fedflat.bench.numerics.streams import numpy_stream

HYPERPARAMETERS: Mapping[str, Mapping[str, float]] = {
    "fedavg": {},
    "scaffold": {},
    "fedsam": {"rho": 0.1},
    "fedsmoo": {"rho": 0.1, "lam": 0.1},
    "fedlesam_s": {"rho": 0.1},
    "fedtoga": {"rho": 0.1, "lam": 0.1, "kappa": 1.0, "beta": 0.9},
}
"""Hyper-parameters by method, as in the papers' experiments; they do not change the time of a step."""

GRADIENTS: Mapping[str, int] = {"fedavg": 1, "fedsam": 2, "fedsmoo": 2, "fedlesam_s": 1, "fedtoga": 2}
"""Gradients per local step, of the methods that have a plain reference."""

SETTINGS = StepSettings(lr=0.01, lr_decay=0.998, weight_decay=1e-3, clip=10.0, aggregation="uniform")

CLASSES = 10
SHAPES: Mapping[str, tuple[int, int, int]] = {
    "mlp": (1, 8, 8),
    "cnn_gn": (1, 8, 8),
    "vit_b_32": (3, 224, 224),
    "bisenet_v2": (3, 512, 1024),
}
"""The shape of images by model, where it is not that of CIFAR."""
PER_PIXEL = ("bisenet_v2",)
"""The models of semantic segmentation."""
MEAN, STD = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)
"""The constants of CIFAR-10, with which the random images are normalised."""


@dataclass(frozen=True)
class Workload:
    """A model, and clients with `images` each, which they pass over `epochs` times a round in batches of `batch`.

    `cnn_gn` and `mlp` get scikit-learn's digits, the others random images, those of segmentation with random classes of
    pixels. Only `distinct` clients have images of their own. A round may use only the first of each client's images.
    """

    model: str
    clients: int
    images: int
    batch: int
    epochs: int = 1
    augmented: bool = True
    distinct: int = 100

    @property
    def on_digits(self) -> bool:
        """Whether the images are real ones of 8×8 pixels."""
        return self.shape == (1, 8, 8)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an image."""
        return SHAPES.get(self.model, (3, 32, 32))

    @property
    def high_resolution(self) -> bool:
        """Whether one gradient takes seconds on a CPU."""
        return self.shape[-1] > 32

    @property
    def per_pixel(self) -> bool:
        """Whether pixels have labels, not images."""
        return self.model in PER_PIXEL

    def module(self, seed: int) -> nn.Module:
        """The network with weights of this seed."""
        if self.model == "mlp":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, CLASSES))
        return build_model(parse_model(self.model), self.shape, CLASSES, seed)

    def data(self) -> DeviceData:
        """The images as uint8, on the CPU."""
        cpu = torch.device("cpu")
        if self.on_digits:
            return Digits().load().on(cpu)[0]
        stream = numpy_stream(0, "benchmark images")
        count = min(self.clients, self.distinct) * self.images
        images = torch.from_numpy(stream.integers(256, size=(count, *self.shape), dtype=np.uint8))
        labels = torch.from_numpy(stream.integers(CLASSES, size=count))
        maps = None
        if self.per_pixel:
            maps = torch.from_numpy(stream.integers(CLASSES, size=(count, *self.shape[1:]), dtype=np.uint8))
        shift, std = (255 * torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
        return DeviceData(images, labels, shift, 1 / std, maps=maps)

    def split(self, images: int) -> list[np.ndarray]:
        """Which images each client uses, `[images]` of those that it has."""
        return [(i % self.distinct) * self.images + np.arange(images) for i in range(self.clients)]

    def steps(self, images: int) -> int:
        """The number of local steps of a client with `images` images."""
        return self.epochs * -(-images // self.batch)

    def batch_of(self, size: int) -> tuple[Tensor, Tensor]:
        """Inputs `[size, ...]` and labels of the first images."""
        return self.data().batch(torch.arange(size))
