"""Models by name. A model is a function of the image shape and the number of classes."""

from collections.abc import Callable

import torch
from torch import nn

from bench.engine.streams import torch_seed
from bench.errors import unknown
from bench.models.cnn_gn import CNNGN

MODELS: dict[str, Callable[[tuple[int, int, int], int], nn.Module]] = {"cnn_gn": CNNGN}


def build_model(name: str, image_shape: tuple[int, int, int], classes: int, seed: int) -> nn.Module:
    """A freshly initialised model; the seed alone decides its weights, and global random state is left alone."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(torch_seed(seed, "model"))  # torch.manual_seed would touch GPUs too
        return MODELS[name](image_shape, classes)
