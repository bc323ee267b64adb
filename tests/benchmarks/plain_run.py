"""A run of the plain reference as a program: reads images, trains, and prints evaluations."""

import sys
from pathlib import Path

import numpy as np

from fedflat.bench.models import build_model, parse_model
from tests.benchmarks.plain import PLAIN, ClientImages
from tests.benchmarks.workload import CLASSES, HYPERPARAMETERS, MEAN, SETTINGS, STD

EVALUATED_BATCH = 500


def main(
    file: Path, device: str, method: str, model: str, clients: int, active: int, batch: int, rounds: int, every: int
) -> None:
    """Train on the images of an npz file, which are split among the clients, and evaluate all of them."""
    with np.load(file) as arrays:
        sets = {
            subset: (_normalised(arrays[f"{subset}_images"]), arrays[f"{subset}_labels"])
            for subset in ("train", "test")
        }
    images, labels = sets["train"]
    order = np.random.default_rng(0)
    split = np.split(order.permutation(len(labels)), clients)
    run = PLAIN[method](
        build_model(parse_model(model), images.shape[1:], CLASSES, 0).to(device),
        [ClientImages(images[i], labels[i], order) for i in split],
        SETTINGS,
        HYPERPARAMETERS[method],
        1,
        batch,
    )
    evaluated = {subset: ClientImages(*arrays) for subset, arrays in sets.items()}
    for t in range(1, rounds + 1):
        run.round(order.choice(clients, active, replace=False))
        if t % every == 0:
            print(t, *(f"{subset}: {run.evaluate(part, EVALUATED_BATCH)}" for subset, part in evaluated.items()))


def _normalised(images: np.ndarray) -> np.ndarray:
    """Channels first, float32."""
    values = (images.astype(np.float32) / 255 - np.float32(MEAN)) / np.float32(STD)
    return np.ascontiguousarray(values.transpose(0, 3, 1, 2))


if __name__ == "__main__":
    name, its_device, its_method, its_model, *numbers = sys.argv[1:]
    main(Path(name), its_device, its_method, its_model, *map(int, numbers))
